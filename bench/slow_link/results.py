"""What a run measured, on disk: one line for each step (raw.csv), and under which conditions (run.json)."""
import csv
import json
import os
from collections import defaultdict

import lab.machine

from .cluster import OPEN_BLAS, rank_threads

FIELDS = ("rate", "parameters", "method", "mode", "round", "ms", "bytes_a", "bytes_b")


class Writer:
    """Appends steps to raw.csv, each whole and at once: a run that is interrupted keeps what it measured."""

    def __init__(self, folder):
        self._file = open(folder / "raw.csv", "w", newline="", encoding="utf-8")
        self._rows = csv.writer(self._file, lineterminator="\n")
        self._rows.writerow(FIELDS)

    def add(self, *row):
        self._rows.writerow(row)
        self._file.flush()

    def close(self):
        self._file.close()


class Cell:
    """One way's steps at one rate, size and mode: {round: ms} and the bytes that each node sent, in the mean over steps and nodes."""

    def __init__(self):
        self.ms, self._bytes = {}, []

    def add(self, turn, ms, sent):
        self.ms[turn] = ms
        self._bytes += sent

    @property
    def node_bytes(self):
        return sum(self._bytes) / len(self._bytes)


def read_raw(path):
    """{(rate, parameters): {(method, mode): Cell}} in the order of the file."""
    found = defaultdict(lambda: defaultdict(Cell))
    with open(path, newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            cell = found[row["rate"], int(row["parameters"])][row["method"], row["mode"]]
            cell.add(int(row["round"]), float(row["ms"]), (int(row["bytes_a"]), int(row["bytes_b"])))
    return found


def write_conditions(folder, conditions):
    draft = folder / "run.json.draft"
    draft.write_text(json.dumps(conditions, indent=1) + "\n", encoding="utf-8")
    draft.rename(folder / "run.json")


def read_conditions(folder):
    return json.loads((folder / "run.json").read_text(encoding="utf-8"))


def machine():
    """What a reader needs to judge the figures by."""
    import torch
    return {**lab.machine.machine(), "torch": torch.__version__, "threads": rank_threads(), "nice": os.nice(0),
            "blas": "OpenBLAS" if OPEN_BLAS.is_dir() else "the reference BLAS, which is slow"}
