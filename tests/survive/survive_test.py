#!/usr/bin/env python3
"""`./dev survive` at its smallest, in earnest, and its page. survive_test.py PROGRAM"""
import csv
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import page

PROGRAM = sys.argv.pop(1)
DEADLINE_S = 120


def run(folder, *options):
    return subprocess.run([PROGRAM, "--output", folder, *options], capture_output=True, text=True, timeout=DEADLINE_S)


class SurviveTest(unittest.TestCase):
    def test_kills_and_rounds_keep_their_promises(self):
        with tempfile.TemporaryDirectory() as folder:
            ran = run(folder, "--quick", "--kills", "3", "--rounds", "5", "--only", "kills", "--only", "rounds", "--commit", "abc")
            self.assertEqual(ran.returncode, 0, ran.stdout + ran.stderr)
            rows = page.read_rows(Path(folder))
            kills = next(row for row in rows if row["fault"] == "all of these kills")
            self.assertGreaterEqual(int(kills["injected"]), 3)
            self.assertEqual((kills["steps_lost"], kills["waits_overdue"], kills["residue"], kills["breaches"]), ("0", "0", "0", ""))
            self.assertLess(float(kills["mass_lost"]), 1e-6)
            self.assertGreater(sum(page.is_codec(row) for row in rows), 30)
            text = page.page_text(rows)
            self.assertIn("kills instead of the 1,000 of the whole form", text)
            self.assertIn("freezes were not run", text)
            self.assertNotIn("**broken**", text)

    def test_what_was_not_run_again_has_its_last_figures(self):
        with tempfile.TemporaryDirectory() as folder:
            folder = Path(folder)

            def write(path, rows):
                path.write_text("".join(line + "\n" for line in ["group,fault", *rows]), encoding="utf-8")

            write(folder / "table", ["kills,old kill", "freezes,old freeze", "rounds,old rounds"])
            write(folder / "rounds.csv", ["rounds,new rounds"])
            self.assertEqual([row["fault"] for row in page.read_rows(folder, folder / "table")], ["old kill", "old freeze", "new rounds"])
            self.assertEqual([row["fault"] for row in page.read_rows(folder, folder / "none")], ["new rounds"])
            self.assertEqual([row["fault"] for row in page.read_rows(folder)], ["new rounds"])

    def test_a_broken_promise_is_in_the_table_and_in_words(self):
        with tempfile.TemporaryDirectory() as folder:
            row = {name: "" for name in ("group", "fault", "injected", "promised", "detections", "detection_median_ms", "detection_longest_ms",
                                         "promised_ms", "steps", "steps_lost", "mass_lost", "waits_overdue", "residue", "breaches", "note")}
            row |= {"minutes": "1.0", "ended": "today", "load": "0.1", "seed": "1", "commit": "abc", "group": "kills", "fault": "kill | thing",
                    "injected": "1000", "steps": "9", "steps_lost": "2", "breaches": "two steps are gone"}
            with open(Path(folder, "kills.csv"), "w", newline="", encoding="utf-8") as file:
                writer = csv.DictWriter(file, row.keys())
                writer.writeheader()
                writer.writerow(row)
            text = page.page_text(page.read_rows(Path(folder)))
        self.assertIn("| kill \\| thing | 1,000 |", text)
        self.assertIn("| 2 of 9 |", text)
        self.assertIn("**broken**", text)
        self.assertIn("- kill | thing: two steps are gone.", text)
        self.assertNotIn("of the whole form", text)

    def test_options_that_it_does_not_know_are_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            for options, word in ((["--kills", "0"], "--kills is '0'"), (["--kills", "1x"], "'1x'"), (["--only", "floods"], "floods"),
                                  (["--fly", "1"], "--fly")):
                ran = run(folder, *options)
                self.assertEqual(ran.returncode, 2, ran.stderr)
                self.assertIn(word, ran.stderr)
                self.assertIn("allowed", ran.stderr)


if __name__ == "__main__":
    unittest.main()
