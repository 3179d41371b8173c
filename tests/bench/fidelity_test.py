#!/usr/bin/env python3
"""`./dev bench fidelity` at its smallest, in earnest: two runs through the library, once interrupted, then published; and what is
computed of runs. Needs torch and Fashion-MNIST."""
import contextlib
import csv
import io
import json
import math
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from python_cluster import SOURCE, require_module, skip_program

require_module("torch", "python3-torch")
require_module("numpy", "python3-numpy")
require_module("matplotlib", "python3-matplotlib")

import numpy as np  # noqa: E402
import torch  # noqa: E402

from fidelity_records import Folder, record  # noqa: E402

from fidelity import codecs, grouped, library, main, optimizers, report, results, stages, training  # noqa: E402

LIBRARY = Path(os.environ["GRADSIEVE_FIDELITY"])
DATASET = Path("/usr/share/datasets/fashion-mnist")
DEADLINE_S = 200


class StudyTest(Folder):
    def study(self, *options):
        found = subprocess.run([sys.executable, "-m", "fidelity.main", "--quick", "--only", "images", "--steps", "4", "--workers", "1", "--device", "cpu",
                                "--library", str(LIBRARY), "--output", str(self.folder), *options], capture_output=True, text=True,
                               timeout=DEADLINE_S, check=False)
        self.assertEqual(found.returncode, 0, found.stderr)
        return found.stdout

    @unittest.skipUnless(DATASET.is_dir(), f"no {DATASET}: install dataset-fashion-mnist")
    def test_runs_are_done_once_and_published(self):
        self.assertIn("fidelity: 1 runs done", self.study("--most", "1"))
        path = self.folder / results.FILE
        first = path.read_text(encoding="utf-8")
        path.write_text(first + '{"run": {"task": "ima', encoding="utf-8")  # it was interrupted while it wrote
        self.assertIn("fidelity: 1 runs done", self.study("--most", "1"))
        self.assertTrue(path.read_text(encoding="utf-8").startswith(first))
        store = results.Store(self.folder)
        self.assertEqual([found["run"]["codec"] for found in store.records.values()], [codecs.DENSE, codecs.quick_candidates()[0].codec])
        dense, sparse = store.records.values()
        self.assertAlmostEqual(dense["wire_ratio"], 0.5, delta=0.05)  # gather sends a payload to three others, a ring 1.5 of it
        self.assertGreater(sparse["wire_ratio"], 20)
        self.assertEqual(len(dense["curve"]), 4)
        self.study("--report")
        page = (self.folder / "fidelity.md").read_text(encoding="utf-8")
        self.assertIn("`topk(0.013) \\| pow2(bits=4) \\| auto`", page)
        with (self.folder / "fidelity.csv").open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        self.assertEqual({row["codec"] for row in rows}, {dense["run"]["codec"], sparse["run"]["codec"]})
        self.assertEqual(rows[0]["curve"].count(";"), 3)


class LibraryTest(unittest.TestCase):
    def test_a_job_averages_and_counts(self):
        shapes = {"b": (300, 5), "a": (40,)}
        random = np.random.default_rng(7)
        samples = random.normal(size=(4, 6, 1540)).astype(np.float32)
        average = np.full(1540, np.nan, np.float32)
        with library.Job(library.load(LIBRARY), "all | f32", shapes, nodes=4, ranks=3, samples=2, batch_samples=12, name="test") as job:
            job.step(samples, average)
            np.testing.assert_allclose(average, samples.astype(np.float64).mean((0, 1)), atol=1e-6)
            self.assertGreater(job.counters.wire_bytes, 3 * job.counters.payload_bytes)
            with self.assertRaisesRegex(ValueError, "allowed is a contiguous one of float32"):
                job.step(samples[:, :5], average)

    def test_what_the_library_refuses_is_said(self):
        with self.assertRaisesRegex(library.JobError, "nodes is 1; allowed is 2 to 64"):
            library.Job(library.load(LIBRARY), "all | f32", {"a": (4,)}, nodes=1, ranks=1, samples=1, batch_samples=0, name="test")


class GroupedTest(unittest.TestCase):
    """Against PyTorch's own layers, group by group."""

    def setUp(self):
        torch.manual_seed(11)

    def test_convolution(self):
        images, weight, bias = torch.randn(2, 3, 5, 4, 6), torch.randn(2, 7, 54), torch.randn(2, 7)
        found = grouped.convolution(images, weight, bias)
        for group in range(2):
            kernel = weight[group].reshape(7, 3, 3, 6).permute(0, 3, 1, 2)
            expected = torch.nn.functional.conv2d(images[group].permute(0, 3, 1, 2), kernel, bias[group], padding=1).permute(0, 2, 3, 1)
            torch.testing.assert_close(found[group], expected, atol=1e-4, rtol=1e-4)

    def test_halved_and_normalized(self):
        images = torch.randn(2, 3, 5, 6, 4)
        expected = torch.nn.functional.max_pool2d(images.flatten(0, 1).permute(0, 3, 1, 2), 2).permute(0, 2, 3, 1).reshape(2, 3, 2, 3, 4)
        torch.testing.assert_close(grouped.halved(images), expected)
        values, gain, bias = torch.randn(2, 3, 5, 8), torch.randn(2, 8), torch.randn(2, 8)
        for group in range(2):
            expected = torch.nn.functional.layer_norm(values[group], (8,), gain[group], bias[group])
            torch.testing.assert_close(grouped.normalized(values, gain, bias)[group], expected, atol=1e-5, rtol=1e-5)

    def test_attention_sees_nothing_that_comes_later(self):
        queries, keys, values = (torch.randn(1, 2, 6, 8) for _ in range(3))
        before = grouped.attention(queries, keys, values, 2)
        values[:, :, 4:] = 9
        keys[:, :, 4:] = -3
        torch.testing.assert_close(grouped.attention(queries, keys, values, 2)[:, :, :4], before[:, :, :4])
        self.assertFalse(torch.equal(grouped.attention(queries, keys, values, 2)[:, :, 4:], before[:, :, 4:]))

    def test_losses(self):
        scores, classes = torch.randn(2, 3, 5, 9), torch.randint(9, (2, 3, 5))
        for group in range(2):
            expected = torch.nn.functional.cross_entropy(scores[group].flatten(0, 1), classes[group].flatten())
            torch.testing.assert_close(grouped.losses(scores, classes)[group], expected)


class OptimizerTest(unittest.TestCase):
    def test_they_are_pytorchs(self):
        torch.manual_seed(3)
        for made, theirs in ((lambda p: optimizers.Sgd(p, 0.9), lambda p: torch.optim.SGD([p], 0.1, momentum=0.9)),
                             (optimizers.Adam, lambda p: torch.optim.Adam([p], 0.1))):
            own, other = torch.ones(20), torch.ones(20, requires_grad=True)
            ours, expected = made(own), theirs(other)
            for _ in range(6):
                other.grad = torch.randn(20)
                ours.step(other.grad.clone(), 0.1)
                expected.step()
            torch.testing.assert_close(own, other.detach(), atol=1e-5, rtol=1e-5)

    def test_the_rate_rises_and_falls(self):
        rates = [optimizers.rate_at(step, 100, 2.0) for step in range(1, 101)]
        self.assertEqual(max(range(100), key=rates.__getitem__), 4)
        self.assertAlmostEqual(rates[4], 2.0)
        self.assertAlmostEqual(rates[-1], 0.02)


class StageTest(Folder):
    def test_finalists_are_the_best_of_each_family_that_reach_a_target(self):
        store = results.Store(self.folder)
        k = codecs.candidates("images")
        plain, gated = (next(found.codec for found in k if found.family == family) for family in ("top-k", "top-k with a gate"))
        for found in (record(codecs.DENSE, 92.0, ratio=0.5), record(plain, 90.0, ratio=99.0), record(plain, 91.0, ratio=98.0, rate=0.5),
                      record(gated, 90.5, ratio=120.0), record("all | sign", 93.0, ratio=15.0)):
            store.add(json.dumps(found) + "\n")
        chosen = stages.finalists(store, "images")
        self.assertEqual([(run.codec, run.rate) for run in chosen], [(plain, 0.5), (gated, 1.0)])

    def test_what_depends_on_results_waits_for_them(self):
        store = results.Store(self.folder)
        runs = list(stages.full(store, store.has))
        self.assertEqual({run.codec for run in runs if run.optimizer == "sgd"}, {codecs.DENSE})
        for run in stages.dense_runs("images", "sgd"):
            store.add(json.dumps(record(codecs.DENSE, 90 - abs(run.rate - 2), ratio=0.5, rate=run.rate)) + "\n")
        rates = {run.rate for run in stages.full(store, store.has) if run.task == "images" and run.codec.startswith("topk")}
        self.assertEqual(rates, {2.0, 1.0})

    def test_a_run_that_ended_early_is_the_worst(self):
        for task in stages.TASKS:
            ended = {**record("all | sign", math.nan, task=task), "error": "non-finite: ..."}
            self.assertLess(stages.score(ended), stages.score(record("all | sign", 7.9 if task != "images" else 12.1, task=task)))
            guessing = record("all | sign", 1e6 if task != "images" else 10.0, task=task)
            self.assertEqual(stages.score(guessing), stages.score(ended), task)

    def test_a_setting_that_a_seed_was_lost_with_is_no_finalist(self):
        store = results.Store(self.folder)
        plain = next(found.codec for found in codecs.candidates("images") if found.family == "top-k")
        for found in (record(plain, 91.0, ratio=99.0), record(plain, 90.0, ratio=99.0, rate=0.5), record(plain, 10.0, ratio=99.0, seed=2),
                      record(codecs.DENSE, 92.0, ratio=0.5, rate=2.0), record(codecs.DENSE, 10.0, ratio=0.5, rate=2.0, seed=2),
                      record(codecs.DENSE, 91.0, ratio=0.5)):
            store.add(json.dumps(found) + "\n")
        self.assertEqual([run.rate for run in stages.finalists(store, "images")], [0.5])
        self.assertEqual(stages.dense_reference(store, "images", "sgd").rate, 1.0)

    def test_a_target_s_finalists_reach_no_higher_one(self):
        store = results.Store(self.folder)
        plain = next(found.codec for found in codecs.candidates("images") if found.family == "top-k")
        store.add(json.dumps(record(plain, 91.0, ratio=1100.0)) + "\n")
        self.assertEqual([len(stages.finalists_at(store, "images", target)) for target in stages.TARGETS], [0, 1])


class PublishedTableTest(Folder):
    def test_a_study_goes_on_from_it(self):
        store = results.Store(self.folder)
        k = codecs.candidates("words")[0].codec
        lost = {**record(k, math.nan, ratio=90.0, task="words", rate=2.0), "error": "non-finite: a gradient", "curve": []}
        for found in (record(k, 7.25, task="words", rate=0.5, rescale=True), record(codecs.DENSE, 7.1, ratio=0.5, task="words", seed=3), lost):
            store.add(json.dumps(found) + "\n")
        published = self.folder / "published" / results.TABLE
        published.parent.mkdir()
        report.write_csv(store, published)
        main.take_over(published.parent, self.folder / "again")
        again = results.Store(self.folder / "again")
        self.assertEqual(again.records.keys(), store.records.keys())
        for key, found in store.records.items():
            self.assertEqual({**again.records[key], "parameters": 10}, found)

    def test_the_one_that_ships_has_all_runs_but_those_that_follow_from_them(self):
        main.take_over(SOURCE / "bench" / "results", self.folder)
        store = results.Store(self.folder)
        left = [run for run in stages.full(store, store.has) if not store.has(run)]
        self.assertGreater(len(store.records), 700)
        self.assertEqual([run.key for run in left if run.optimizer == "sgd" and not run.steps], [])


class ReportTest(unittest.TestCase):
    def group(self, *metrics, task="images"):
        return report.Group([record("topk(0.01) | f32", metric, seed=seed, task=task) for seed, metric in enumerate(metrics)])

    def test_verdicts_need_a_difference_beyond_the_noise(self):
        self.assertEqual(report.verdict(self.group(91.0, 91.2, 91.1), self.group(90.0, 90.2, 90.1)), "better")
        self.assertEqual(report.verdict(self.group(91.0, 92.2, 90.1), self.group(90.9, 91.2, 91.9)), "undecided")
        self.assertEqual(report.verdict(self.group(2.0, 2.01, task="text"), self.group(1.8, 1.81, task="text")), "worse")
        self.assertEqual(report.verdict(self.group(2.0), self.group(1.8, 1.81)), "undecided (one seed)")

    def test_what_is_written_by_hand_stays(self):
        with tempfile.TemporaryDirectory() as folder:
            page = Path(folder) / "page.md"
            store = results.Store(Path(folder))
            store.add(json.dumps(record(codecs.DENSE, 90.0)) + "\n")
            report.write(store, page, Path(folder) / "table.csv")
            text = page.read_text(encoding="utf-8").replace(report.BEGIN, report.BEGIN + "\n\nWhat follows from it.\n")
            page.write_text(text, encoding="utf-8")
            report.write(store, page, Path(folder) / "table.csv")
            self.assertEqual(page.read_text(encoding="utf-8").count("What follows from it."), 1)


class OptionTest(unittest.TestCase):
    def refused(self, *arguments):
        said = io.StringIO()
        with contextlib.redirect_stderr(said), self.assertRaises(SystemExit):
            main.parse_arguments(list(arguments))
        return said.getvalue()

    def test_options_that_do_not_fit_are_refused(self):
        self.assertIn("--workers is 0: allowed is a whole number from 1", self.refused("--workers", "0"))
        self.assertIn("no *.jsonl and no fidelity.csv there", self.refused("--from", "/nonexistent"))

    def test_what_is_missing_is_named(self):
        options = main.parse_arguments(["--library", "/nonexistent/library.so"])
        found = main.missing(options, Path("/nonexistent"), {"text"})
        self.assertTrue(any("apt install perl-doc" in line for line in found))
        self.assertTrue(any("./dev build" in line for line in found))
        self.assertFalse(any("dataset-fashion-mnist" in line for line in found))


class SamplerTest(unittest.TestCase):
    def test_an_epoch_has_every_sample_once(self):
        sampler = training.Sampler(100, 20, 5)
        epoch = np.concatenate([sampler.next() for _ in range(5)])
        self.assertEqual(sorted(epoch), list(range(100)))
        self.assertFalse(np.array_equal(epoch, np.arange(100)))


if __name__ == "__main__":
    if not LIBRARY.exists():
        skip_program(f"no {LIBRARY}")
    sys.path.insert(0, str(SOURCE / "bench"))
    unittest.main()
