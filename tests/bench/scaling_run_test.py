#!/usr/bin/env python3
"""`./dev bench scaling` at its smallest, in earnest: namespaces around a switch, daemons, the simulation beside them. Asserts what
holds on any machine, however busy: bytes, equal averages, and that nothing is left behind. What needs root is skipped without."""
import contextlib
import csv
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path
from unittest import mock

from python_cluster import BUILD, require_module, skip_program

require_module("numpy", "python3-numpy")

from scaling import main, progress, report, star  # noqa: E402
from lab.namespaces import NAMESPACES, LinkError  # noqa: E402

DEADLINE_S = 300


def can_make_a_star():
    if os.geteuid() != 0 or shutil.which("tc") is None:
        return False
    try:
        with star.Star(2, 20e6, 16384):
            return True
    except LinkError:
        return False


HAS_STARS = can_make_a_star()


class Folder(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(prefix="gradsieve-scaling-test-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def command(self, *options):
        return [sys.executable, "-m", "scaling.main", "--output", str(self.folder / "output"), *options]

    def call(self, *options):
        return subprocess.run(self.command(*options), capture_output=True, text=True, timeout=DEADLINE_S)


def namespaces():
    return sorted(entry.name for entry in NAMESPACES.glob(star.PREFIX + "*")) if NAMESPACES.is_dir() else []


@unittest.skipUnless(HAS_STARS, "no limited links can be made here")
class RealTest(Folder):
    def test_real_daemons_send_what_the_simulation_says_and_the_page_tells(self):
        ran = self.call("--quick", "--steps", "2")
        self.assertEqual(ran.returncode, 0, ran.stdout + ran.stderr)
        kept = json.loads((self.folder / "output" / "run.json").read_text())
        self.assertEqual([(row["plan"], row["nodes"]) for row in kept["real"]], [("gather", 2), ("gather", 3), ("sharded", 2), ("sharded", 3)])
        for row in kept["real"]:
            self.assertEqual((len(row["step_ms"]), len(row["sent"])), (2, row["nodes"]))
            self.assertTrue(all(seconds >= 0 for seconds in row["cpu_s"]))
            for memory in row["memory"]:
                self.assertGreater(memory, 12 * row["elements"])
            for sent in row["sent"]:
                self.assertGreater(sent, 0.8 * row["simulated"]["sent_mean"], row)
                # Heartbeats, and acknowledgements of TCP, count for more than a tenth of such small payloads.
                self.assertLess(sent, 2 * row["simulated"]["sent_mean"], row)
        page = (self.folder / "output" / "scaling.md").read_text()
        for words in ("## Measured, and simulated for the same", "By the sharded plan a node sent at most", "| straggler | gather |",
                      "the quick form"):
            self.assertIn(words, page)
        with open(self.folder / "output" / "scaling.csv", newline="", encoding="utf-8") as file:
            kinds = [row["kind"] for row in csv.DictReader(file)]
        self.assertEqual(kinds.count("measured"), 4)
        self.assertGreater(kinds.count("simulated"), 10)
        self.assertEqual(namespaces(), [])

    def test_an_interrupted_run_leaves_no_namespace(self):
        process = subprocess.Popen(self.command("--quick", "--steps", "1000"), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        self.addCleanup(process.kill)
        deadline = time.monotonic() + DEADLINE_S
        while not namespaces():
            self.assertIsNone(process.poll())
            self.assertLess(time.monotonic(), deadline)
            os.sched_yield()
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=DEADLINE_S)
        self.assertEqual(process.returncode, 128 + signal.SIGTERM, said)
        self.assertEqual(namespaces(), [])


class SimulatedTest(Folder):
    def test_without_root_it_simulates_alone(self):
        ran = self.call("--quick", "--simulate-only")
        self.assertEqual(ran.returncode, 0, ran.stdout + ran.stderr)
        page = (self.folder / "output" / "scaling.md").read_text()
        self.assertNotIn("## Measured", page)
        rows = re.findall(r"^\| (gather|sharded) \| (\d+) \|", page, re.MULTILINE)
        self.assertEqual(rows[:4], [("gather", "2"), ("gather", "8"), ("sharded", "2"), ("sharded", "8")])
        again = self.call("--report")
        self.assertEqual(again.returncode, 0, again.stderr)
        self.assertEqual((self.folder / "output" / "scaling.md").read_text(), page)

    def test_a_run_that_was_broken_off_is_gone_on_with(self):
        simulated = []

        def broken(*arguments, **options):
            if len(simulated) == 3:
                raise KeyboardInterrupt
            simulated.append(arguments)
            return simulate(*arguments, **options)

        simulate, options = main.simulate, ["--quick", "--simulate-only", "--output", str(self.folder / "output")]
        with mock.patch.object(main, "simulate", broken), contextlib.redirect_stdout(io.StringIO()), self.assertRaises(KeyboardInterrupt):
            main.main(options)
        kept = json.loads((self.folder / "output" / "progress.json").read_text())["found"]
        self.assertEqual(sum(name.startswith("simulated") for name in kept), 3)
        ran = self.call("--quick", "--simulate-only")
        self.assertEqual(ran.returncode, 0, ran.stdout + ran.stderr)
        self.assertIn(f"going on with a run that was broken off: {len(kept)} results are there", ran.stdout)
        rows = json.loads((self.folder / "output" / "run.json").read_text())["simulated"]
        first = {(row["plan"], row["nodes"]): row["step_ms"] for row in rows if row["model"] == "25.6 M" and not row["fault"]}
        self.assertEqual(first["gather", 8], kept["simulated 25.6 M - gather 8"][0]["step_ms"])
        self.assertFalse((self.folder / "output" / "progress.json").exists())

    def test_other_programs_begin_anew(self):
        path = self.folder / "progress.json"
        self.assertEqual(progress.Progress(path, {"programs": "a"}).found("x", 1, make=lambda: 5), 5)
        again = progress.Progress(path, {"programs": "a"})
        self.assertEqual((len(again), again.found("x", 1, make=lambda: 6)), (1, 5))
        self.assertEqual(len(progress.Progress(path, {"programs": "b"})), 0)
        path.write_text("{")
        self.assertEqual(len(progress.Progress(path, {"programs": "a"})), 0)

    def test_wrong_words_are_refused(self):
        for options, words in ((("--steps", "0"), "--steps is 0: allowed is a whole number from 1"),
                               (("--report",), "allowed is a folder in which a run has ended")):
            ran = self.call(*options)
            self.assertNotEqual(ran.returncode, 0)
            self.assertIn(words, ran.stderr)

    def test_the_program_refuses_what_it_cannot_simulate(self):
        program = BUILD / "bench" / "scaling" / "gradsieve-simulate"
        for options, words in ((("--nodes", "1"), "--nodes"), (("--elements", "3", "--tensors", "4"), "name fewer"), (("--rate", "0"), "--rate")):
            ran = subprocess.run([program, *options], capture_output=True, text=True, timeout=DEADLINE_S)
            self.assertNotEqual(ran.returncode, 0, options)
            self.assertIn(words, ran.stderr + ran.stdout)


class ReportTest(unittest.TestCase):
    @staticmethod
    def real(plan, nodes, sent):
        return {"plan": plan, "nodes": nodes, "elements": 1e6, "step_ms": [90.0, 100.0, 120.0], "sent": [sent] * nodes, "cpu_s": [0.004] * nodes,
                "memory": [16e6] * nodes,
                "simulated": {"payload_bytes": 1000.0, "sent_mean": sent / 1.25, "step_ms": 80.0}}

    def test_aims_are_judged_by_what_was_measured(self):
        kept = report.aims([self.real("gather", 2, 1000), self.real("sharded", 2, 1000), self.real("sharded", 16, 1900)])
        self.assertIn("at most 1.90 of its payloads; the aim is 2.1: kept", kept[0])
        self.assertIn("from 4000 to 3947, a change of -1.3 %; the aim is -10 % or better: kept", kept[0])
        missed = report.aims([self.real("sharded", 2, 1000), self.real("sharded", 16, 2200)])
        self.assertEqual(missed[0].count("missed"), 2)
        self.assertIn("took 1.25 core-s for 10 Gbit of its rank's gradient with 2 nodes; the aim is a core for 10 Gbit/s: missed", missed[1])
        self.assertEqual(report.aims([self.real("gather", 2, 1000)]), [])

    def test_rows_tell_how_far_measured_and_simulated_are_apart(self):
        row = report.real_table([self.real("gather", 2, 1000)])[1]
        self.assertEqual(row[:7], ["gather", "2", "1.0", "0.8", "+25.0 %", "1.00", "4000"])
        self.assertEqual(row[7:], ["100, 90 to 120", "80", "+25.0 %", "1.25", "16.00"])

    def test_what_is_missing_is_named(self):
        options = mock.Mock(simulate_only=False, quick=True)
        with mock.patch("os.geteuid", return_value=1000), mock.patch("shutil.which", return_value=None):
            lacking = main.missing(Path("/no/such/build"), options)
        for words in ("/no/such/build/daemon/gradsieved: ./dev build", "root: network namespaces", "`tc`: apt install iproute2"):
            self.assertTrue(any(words in line for line in lacking), lacking)
        with contextlib.redirect_stderr(io.StringIO()), self.assertRaises(SystemExit):
            main.parse_arguments(["--nodes"])


if __name__ == "__main__":
    if not (BUILD / "bench" / "scaling" / "gradsieve-simulate").exists():
        skip_program("gradsieve-simulate is not built")
    unittest.main()
