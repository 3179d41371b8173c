#!/usr/bin/env python3
"""Runs of `./dev bench fidelity` that have four times the steps: which there are, what does not see them, and where they are told of."""
import csv
import dataclasses
import subprocess
import sys
import unittest

from python_cluster import require_module

require_module("torch", "python3-torch")
require_module("numpy", "python3-numpy")
require_module("matplotlib", "python3-matplotlib")

from fidelity_records import Folder, add, record_of  # noqa: E402

from fidelity import codecs, main, report, results, stages  # noqa: E402

DEADLINE_S = 100
OF_FAMILY = {found.family: found.codec for found in reversed(codecs.candidates("images"))}
# Finalists at 100; the last has variance.
NEAR = [OF_FAMILY[family] for family in ("top-k", "DGC", "EF21", "top-k, entropy", "top-k with a gate")]
FAR = OF_FAMILY["sketch"]  # the only finalist at 1,000


def metric(run):
    """By the first seed the first of NEAR is the best, by the others the last."""
    if run.codec == codecs.DENSE:
        return 91.0 - run.rate
    if run.codec not in NEAR:
        return 70.0
    return 90.0 - NEAR.index(run.codec) if run.seed == 1 else 85.0 + NEAR.index(run.codec)


def ratio(run):
    return 0.5 if run.codec == codecs.DENSE else 110.0 if run.codec in NEAR else 1100.0 if run.codec == FAR else 50.0


class Images(Folder):
    """All that images' finalists follow from is done."""

    def setUp(self):
        super().setUp()
        self.store = results.Store(self.folder)
        for _ in ("uncompressed", "codecs"):
            for run in list(stages.full(self.store, self.store.has)):
                if run.task == "images" and run.optimizer == "sgd" and not self.store.has(run):
                    self.add(run, metric(run))

    def add(self, run, result):
        add(self.store, record_of(run, result, ratio(run)))

    def add_seeds(self, seeds=stages.SEEDS[1:]):
        for run in (stages.dense_reference(self.store, "images", "sgd"), *stages.finalists(self.store, "images")):
            for seed in seeds:
                seeded = dataclasses.replace(run, seed=seed)
                self.add(seeded, metric(seeded))

    def longer(self):
        return [run for run in stages.full(self.store, self.store.has) if run.steps]

    def add_longer(self):
        for run in self.longer():
            self.add(run, 92.0 + 0.01 * run.seed - 0.5 * (run.codec != codecs.DENSE))


class StageTest(Images):
    def test_they_wait_for_all_seeds_of_the_finalists(self):
        self.assertEqual(len(stages.finalists(self.store, "images")), 6)
        self.assertEqual(self.longer(), [])
        self.add_seeds(stages.SEEDS[1:4])
        self.assertEqual(self.longer(), [])
        self.add_seeds(stages.SEEDS[4:])
        runs = self.longer()
        self.assertEqual({(run.task, run.size, run.optimizer, run.steps) for run in runs}, {("images", "full", "sgd", 3200)})
        self.assertEqual(list(stages.full(self.store, self.store.has))[-len(runs):], runs)

    def test_references_come_first_then_the_first_seed(self):
        self.add_seeds()
        best = [NEAR[4], NEAR[3], NEAR[2], FAR]  # by all seeds; the first has variance
        self.assertEqual([(run.codec, run.seed) for run in self.longer()],
                         [*((codecs.DENSE, seed) for seed in (1, 2, 3)), *((codec, seed) for seed in (1, 2, 3) for codec in best)])
        self.assertEqual({run.rate for run in self.longer() if run.codec == codecs.DENSE}, {0.25})

    def test_where_all_are_behind_they_become_longer_still(self):
        self.add_seeds()
        shorter = self.longer()
        for place, run in enumerate(shorter):
            self.assertEqual(self.longer(), shorter, f"{len(shorter) - place} runs are left")
            self.add(run, 92.0 + 0.01 * run.seed - 0.5 * (run.codec != codecs.DENSE))
        runs = self.longer()[len(shorter):]
        self.assertEqual([(run.codec, run.seed, run.steps) for run in runs],
                         [*((codecs.DENSE, seed, 12_800) for seed in (1, 2, 3)),
                          *((codec, seed, 12_800) for seed in (1, 2, 3) for codec in (NEAR[4], NEAR[3]))])
        for run in runs:
            self.add(run, 92.5)
        self.assertIn("### images, 12,800 steps", "\n".join(report.longer(self.store, "images")))
        self.add(next(run for run in shorter if run.codec == NEAR[3] and run.seed == 1), 93.5)  # one is level
        self.assertEqual(self.longer(), shorter)

    def test_the_best_with_variance_is_always_there(self):
        self.add_seeds()
        for run in map(results.run_of, list(self.store.records.values())):
            if run.codec == NEAR[4]:
                self.add(run, 75.0)
        self.assertEqual([run.codec for run in self.longer() if run.seed == 1], [codecs.DENSE, NEAR[3], NEAR[2], NEAR[1], NEAR[4], FAR])

    def test_what_has_the_usual_steps_does_not_see_them(self):
        self.add_seeds()

        def seen():
            runs = [run for run in stages.full(self.store, self.store.has) if not run.steps]
            return (runs, stages.finalists(self.store, "images"), stages.dense_reference(self.store, "images", "sgd"),
                    stages.lost_ones(self.store, "images", "sgd"), report.standing(self.store, "images"),
                    report.ranks(self.store, "images"), report.dense_group(self.store, "images", "sgd").metrics)

        before, laid_out = seen(), self.longer()
        for run in laid_out:  # the last seed is lost
            self.add(run, 99.0 if run.seed < 3 else 10.0)
        self.assertEqual(seen(), before)
        self.assertEqual(self.longer(), laid_out)

    def test_only_picks_them_and_steps_are_every_run_s(self):
        self.add_seeds()
        self.assertEqual(main.Study(main.parse_arguments(["--only", "steps 3200"]), self.store).wanted(), self.longer())
        runs = main.Study(main.parse_arguments(["--steps", "4"]), self.store).wanted()
        usual = [dataclasses.replace(run, steps=4) for run in stages.full(self.store, self.store.has) if not run.steps]
        self.assertEqual(runs, list(dict.fromkeys(usual)))


class ReportTest(Images):
    def setUp(self):
        super().setUp()
        self.add_seeds()

    def test_the_table_keeps_their_steps(self):
        self.add_longer()
        ended = [run for run in self.longer() if run.steps == 3200][-1]
        add(self.store, {**record_of(ended, 0.0), "error": "non-finite: a gradient", "curve": [], "steps": 51})
        table = self.folder / "published" / results.TABLE
        report.write_csv(self.store, table)
        main.take_over(table.parent, self.folder / "again")
        again = results.Store(self.folder / "again")
        self.assertEqual(again.records.keys(), self.store.records.keys())
        self.assertEqual((again.records[ended.key]["run"]["steps"], again.records[ended.key]["steps"]), (3200, 51))

    def test_a_table_from_before_them_is_read(self):
        table = self.folder / "published" / results.TABLE
        report.write_csv(self.store, table)
        with table.open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        self.assertEqual({row.pop("steps_asked") for row in rows}, {""})
        self.assertEqual({results.run_of(results.record_of_row(row)).key for row in rows}, set(self.store.records))

    def test_the_page_has_them_beside_the_usual_ones(self):
        self.assertNotIn("Longer runs", "\n".join(report.page_lines(self.store, "")))
        self.add_longer()
        page = "\n".join(report.page_lines(self.store, ""))
        section = page.split("\n## Longer runs\n")[1].split("\n## ")[0]
        self.assertIn("### images, 3,200 steps", section)
        self.assertNotIn("### text", section)
        rows = [line.strip("| ").replace("\\|", ",").split(" | ") for line in section.splitlines() if line.startswith("| `")]
        self.assertEqual([row[:1] + row[3:] for row in rows if row[1] in ("uncompressed", "top-k with a gate")],
                         [["`all , f32`", "3", "92.02 +- 0.01", "0.5", "-", "-", "90.75 +- 0.00", "-"],
                          ["`" + NEAR[4].replace("|", ",") + "`", "3", "91.52 +- 0.01", "110.0", "worse", "0.50", "88.40 +- 1.34", "2.35"]])
        self.assertEqual(len(rows), 5)
        self.assertEqual(page[page.index("## Every full run"):].count("3,200 steps"), 15)

    def test_a_reference_that_was_lost_is_nothing_to_compare_with(self):
        self.add_longer()
        self.add(next(run for run in self.longer() if run.codec == codecs.DENSE and run.seed == 2), 10.0)
        rows = [line.strip("| ").split(" | ") for line in report.longer(self.store, "images") if line.startswith("| `")]
        self.assertEqual([row[6:8] for row in rows], [["-", "-"]] * 5)

    def test_pictures_do_not_show_them(self):
        def drawn(name):
            subprocess.run([sys.executable, "-m", "fidelity.picture", str(self.folder), "images", str(self.folder / name)], check=True,
                           timeout=DEADLINE_S)
            return {path.name: path.read_bytes() for path in (self.folder / name).iterdir()}

        before = drawn("before")
        self.assertEqual(before.keys(), {"fidelity_images.png", "fidelity_images_curves.png"})
        self.add_longer()
        self.assertEqual(drawn("after"), before)


if __name__ == "__main__":
    unittest.main()
