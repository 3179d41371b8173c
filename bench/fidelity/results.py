"""Runs that are done, as lines of JSON: a line is a run that ended, whole, so that what was interrupted begins anew."""
from __future__ import annotations

import dataclasses
import json
from pathlib import Path

from .plan import Run

FILE = "runs.jsonl"


def line_of(run: Run, outcome: dict, machine: str) -> str:
    return json.dumps({"run": dataclasses.asdict(run), "machine": machine, **outcome}) + "\n"


def run_of(record: dict) -> Run:
    return Run(**record["run"])


class Store:
    """All runs that a folder's files tell of, and the place of new ones. One process writes."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._path = folder / FILE
        self.records: dict[str, dict] = {}
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

    def of(self, **wanted: object) -> list[dict]:
        """Records whose run has these values."""
        return [record for record in self.records.values() if all(record["run"][name] == value for name, value in wanted.items())]
