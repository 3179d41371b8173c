"""Runs that are done, as lines of JSON: a line is a run that ended, whole, so that what was interrupted begins anew. The published
table tells of runs too, all but the training losses of those that it was first published with."""
from __future__ import annotations

import csv
import dataclasses
import json
import math
from pathlib import Path

from .plan import Run

FILE = "runs.jsonl"
TABLE = "fidelity.csv"


def line_of(run: Run, outcome: dict, machine: str) -> str:
    return json.dumps({"run": dataclasses.asdict(run), "machine": machine, **outcome}) + "\n"


def run_of(record: dict) -> Run:
    return Run(**record["run"])


def curve_text(curve: list[dict]) -> str:
    return ";".join(f"{point['step']}:{point['metric']:g}:{point['wire_bytes']}:{point['loss']:g}" for point in curve)


def _point_of(text: str, test_loss: float) -> dict:
    step, metric, wire_bytes, *loss = text.split(":")
    return {"step": int(step), "metric": float(metric), "wire_bytes": int(wire_bytes), "loss": float(loss[0]) if loss else math.nan,
            "test_loss": test_loss}


def record_of_row(row: dict[str, str]) -> dict:
    """Of a row of the published table. Only a curve's last point has its own test loss; older tables have no `steps_asked`."""
    run = Run(row["task"], row["codec"], size=row["size"], optimizer=row["optimizer"], seed=int(row["seed"]), rate=float(row["rate"]),
              ranks=int(row["ranks"]), micro_batches=int(row["micro_batches"]), source=row["source"], rescale=row["rescale"] == "1",
              local_momentum=row["local_momentum"] == "1", steps=int(row.get("steps_asked") or 0))
    curve = [_point_of(text, float(row["test_loss"])) for text in row["curve"].split(";") if text]
    if curve:
        curve[-1]["metric"] = float(row["metric"])
    numbers = {name: float(row[name]) for name in ("wire_ratio", "payload_ratio", "kept", "seconds")}
    return {"run": dataclasses.asdict(run), "machine": row["machine"], "steps": int(row["steps"]), "sources": [row["variance_sources"]],
            "error": row["error"], "curve": curve, **numbers}


class Store:
    """All runs that a folder's files tell of, and the place of new ones. One process writes."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._path = folder / FILE
        self.records: dict[str, dict] = {}
        for path in sorted(folder.glob(f"from-*{TABLE}")):
            with path.open(newline="", encoding="utf-8") as file:
                for record in map(record_of_row, csv.DictReader(file)):
                    self.records[run_of(record).key] = record
        for path in sorted(folder.glob("*.jsonl")):
            for line in path.read_text(encoding="utf-8").splitlines():
                self._keep(line)

    def _keep(self, line: str) -> None:
        try:
            record = json.loads(line)
            key = run_of(record).key
        except (ValueError, TypeError, KeyError):
            return  # a line that was being written when the machine went
        self.records[key] = record

    def add(self, line: str) -> None:
        is_torn = self._path.exists() and not self._path.read_bytes().endswith(b"\n") and self._path.stat().st_size > 0
        with self._path.open("a", encoding="utf-8") as file:
            file.write(("\n" if is_torn else "") + line)
        self._keep(line)

    def has(self, run: Run) -> bool:
        return run.key in self.records

    def of(self, *, steps: "int | None" = 0, **wanted: object) -> list[dict]:
        """Records whose run has these values: with the task's number of steps, unless another is asked for (None: any)."""
        return [record for record in self.records.values() if steps in (None, record["run"]["steps"])
                and all(record["run"][name] == value for name, value in wanted.items())]
