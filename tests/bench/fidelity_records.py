"""Results of the fidelity study that nobody ran, for tests of what is computed of them."""
import json
import tempfile
import unittest
from pathlib import Path

from fidelity import plan, results


def record_of(run, metric, ratio=100.0):
    return {"run": run.__dict__, "machine": "a machine",
            "curve": [{"step": 9, "loss": 1.0, "metric": metric, "test_loss": 1.0, "wire_bytes": 5}],
            "error": "", "steps": 9, "parameters": 10, "wire_ratio": ratio, "payload_ratio": 2 * ratio, "kept": 0.01, "sources": ["none"],
            "seconds": 1.0}


def record(codec, metric, *, ratio=100.0, seed=1, task="images", **options):
    return record_of(plan.Run(task, codec, seed=seed, **options), metric, ratio)


def add(store: results.Store, found: dict) -> None:
    store.add(json.dumps(found) + "\n")


class Folder(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory(prefix="gradsieve-fidelity-test-")
        self.addCleanup(temporary.cleanup)
        self.folder = Path(temporary.name)
