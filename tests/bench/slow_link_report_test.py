#!/usr/bin/env python3
"""What the slow-link comparison computes: intervals, verdicts, tables, the page; which buckets PyTorch's ways get; what it says
where it cannot run. Measures nothing."""
import contextlib
import io
import os
import signal
import tempfile
import unittest
from pathlib import Path
from unittest import mock

from python_cluster import require_module

require_module("torch", "python3-torch")

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

from lab import ending  # noqa: E402
from slow_link import catalog, link, main, methods, network, page, paired, report, results  # noqa: E402

GLOO, OURS = catalog.GLOO.name, catalog.OUR_DEFAULT.name
CONDITIONS = {"arguments": [], "began": "2026-01-02 03:04", "rounds": 20, "slow_every": 1, "quick": False, "minutes": 3.0,
              "machine": {"cpu": "a processor", "cores": 2, "kernel": "6.0", "torch": "1.13", "blas": "OpenBLAS", "threads": 1,
                          "commit": "abc", "load": 0.0},
              "checks": {"100M 8396800": [[5000, 0.1, 0.4], [33_600_000, 2690.0, 2688.0]]},
              "plans": {"100M 8396800": {GLOO: 2700.0, OURS: 20.0}}}


class PairedTest(unittest.TestCase):
    def test_intervals_are_those_of_the_tables(self):
        # Ranks of the 95 % interval of a median, as tables of order statistics have them.
        for count, low, high in ((6, 1, 6), (10, 2, 9), (20, 6, 15), (100, 40, 61)):
            self.assertEqual(paired.median_interval([float(number) for number in range(count, 0, -1)]), (low, high), count)

    def test_too_few_values_have_no_interval_and_no_verdict(self):
        self.assertIsNone(paired.median_interval([2.0] * 5))
        self.assertEqual(paired.verdict(None), paired.UNDECIDED)

    def test_a_verdict_needs_the_whole_interval_on_one_side(self):
        for interval, limit, expected in (
                ((1.1, 2.0), 1, paired.FASTER), ((0.4, 0.9), 1, paired.SLOWER), ((0.9, 1.1), 1, paired.UNDECIDED),
                ((1.0, 3.0), 1, paired.UNDECIDED), ((50, 59), 60, paired.SLOWER), ((59, 61), 60, paired.UNDECIDED)):
            self.assertEqual(paired.verdict(interval, limit), expected, (interval, limit))

    def test_ratios_are_of_rounds_that_both_took_part_in(self):
        self.assertEqual(paired.paired_ratios({0: 2.0, 1: 4.0, 5: 1.0}, {1: 8.0, 0: 2.0, 7: 3.0}), [1.0, 2.0])


class LinkTest(unittest.TestCase):
    def test_payloads_below_five_bursts_are_exempt(self):
        rate = link.RATES["100M"]
        self.assertEqual([rate.is_exempt(size) for size in (81_919, 81_920)], [True, False])
        self.assertAlmostEqual(rate.wire_s(12_500_000), 1.0)
        self.assertEqual({name: known.burst_kib for name, known in link.RATES.items()}, {"100M": 16, "1G": 64, "10G": 256})


class MethodsTest(unittest.TestCase):
    def test_the_network_has_exactly_the_parameters_asked_for(self):
        for parameters in main.SIZES:
            channels, first, second = network.widths_of(parameters)
            layers = [(9, 16), (9 * 16, channels), (49 * channels, first), (first, second), (second, 10)]
            self.assertEqual(sum(inputs * outputs + outputs for inputs, outputs in layers), parameters)
        made = network.make_network(main.QUICK_SIZE)
        self.assertEqual(sum(parameter.numel() for parameter in made.parameters()), main.QUICK_SIZE)

    def test_buckets_are_those_of_distributed_data_parallel(self):
        for sizes in ([100, 200, 300], [10_000_000, 3, 7_000_000, 40, 300_000, 10], [500_000] * 30, [7_000_000]):
            tensors = [torch.empty(size) for size in reversed(sizes)]
            expected, _ = dist._compute_bucket_assignment_by_size(tensors, [methods.FIRST_BUCKET_BYTES, methods.BUCKET_BYTES])
            found = [[len(sizes) - 1 - place for place in run] for run in methods.bucket_runs(sizes)]
            self.assertEqual(found, expected, sizes)


class ReportTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        writer = results.Writer(self.folder)
        self.addCleanup(writer.close)
        for turn in range(20):
            for mode in catalog.MODES:
                for name in catalog.METHODS:
                    ms, sent = {GLOO: (3000.0, 34_000_000), OURS: (30.0 + turn / 10, 150_000),
                                "gradsieve all | f32, plain": (3600.0, 34_000_000),
                                "gradsieve all | sign, plain": (2990.0 if turn % 2 else 3010.0, 1_000_000),
                                catalog.POWER_SGD[1].name: (60.0, 40_000)}.get(name, (100.0, 1_000_000))
                    writer.add("100M", 8_396_800, name, mode, turn, ms, sent, sent)
        results.write_conditions(self.folder, CONDITIONS)
        self.raw = results.read_raw(self.folder / "raw.csv")

    def row(self, name):
        return report.rows_of(self.raw["100M", 8_396_800], "100M", 8_396_800)[name, catalog.IN_PLACE]

    def test_a_row_has_median_spread_bytes_and_ratio(self):
        row = self.row(OURS)
        self.assertAlmostEqual(row.median, 30.95)
        self.assertAlmostEqual(row.low, 30.19)
        self.assertAlmostEqual(row.high, 31.71)
        self.assertEqual((row.bytes, row.steps, row.is_exempt), (150_000, 20, False))
        self.assertAlmostEqual(row.wire_ms, 12.0)
        self.assertAlmostEqual(row.ratio.median, (3000 / 30.9 + 3000 / 31.0) / 2)
        for found, expected in zip(row.ratio.interval, (3000 / 31.4, 3000 / 30.5)):  # ranks 6 and 15 of 20
            self.assertAlmostEqual(found, expected)
        self.assertTrue(self.row(catalog.POWER_SGD[1].name).is_exempt)

    def test_losing_and_undecided_rows_are_told(self):
        rows = report.rows_of(self.raw["100M", 8_396_800], "100M", 8_396_800)
        lost, undecided = report.losing(rows)
        self.assertEqual({row.name for row in lost}, {"gradsieve all | f32, plain"})
        self.assertEqual({row.name for row in undecided}, {"gradsieve all | sign, plain"})
        text = page.page_text(self.raw, CONDITIONS)
        self.assertRegex(text, r"Slower than Gloo's all-reduce: gradsieve all \| f32, plain, in place")
        self.assertRegex(text, r"Undecided: gradsieve all \| sign, plain, in place")
        for name in catalog.METHODS:
            self.assertIn("| " + name.replace("|", "\\|") + " |", text)

    def test_the_page_says_what_weakens_its_figures(self):
        self.assertIn("**Read with care:** 20 steps of each way", page.page_text(self.raw, CONDITIONS))
        busy = {**CONDITIONS, "rounds": 100, "machine": {**CONDITIONS["machine"], "load": 7.0}}
        self.assertRegex(page.page_text(self.raw, busy), r"\*\*A try, not to be quoted:\*\* other programs used the machine: 7.0")
        slow = {**CONDITIONS, "checks": {"100M 8396800": [[5000, 0.9, 0.4], [33_600_000, 3600.0, 2688.0]]}}
        self.assertRegex(page.page_text(self.raw, slow), r"single messages took up to 1\.34 times what the rate gives them\s+\(100M")
        self.assertNotIn("Read with care", page.page_text(self.raw, {**CONDITIONS, "rounds": 100}))

    def test_the_planner_is_compared(self):
        rows = report.rows_of(self.raw["100M", 8_396_800], "100M", 8_396_800)
        self.assertEqual(report.plan_table(rows, CONDITIONS["plans"]["100M 8396800"])[1:], [
            (GLOO, "2,700", "3,000", "-10 %", ""), (OURS, "20.0", "30.9", "-35 %", "more than 20 %")])

    def test_aims_are_reached_missed_or_undecided(self):
        self.assertEqual(report.aim_table(self.raw)[1:], [("100M", GLOO, "60.0", "96.9 [95.5, 98.4]", "reached")])

    def test_the_floor_counts_passes_wire_and_a_millisecond(self):
        copy, default = results.Cell(), results.Cell()
        for turn in range(6):
            copy.add(turn, 10.0, (0, 0))
            default.add(turn, 20.0, (125_000, 125_000))  # 1 ms at 1 Gbit/s
        cells = {(catalog.COPY.name, catalog.IN_PLACE): copy, (OURS, catalog.IN_PLACE): default}
        for floor in report.floor_ms(cells).values():
            self.assertAlmostEqual(floor, 1.4 * 15 + 1 + 1)  # 24 B an element where the copy has 16
        self.assertEqual(report.aim_table({("1G", report.AIM_SIZE): cells})[1][2:], ("1.00", "1.15 [1.15, 1.15]", "reached"))

    def test_tables_and_summary_are_written(self):
        said = []
        with mock.patch("importlib.util.find_spec", return_value=None):
            report.write_report(self.folder, False, said.append)
        self.assertIn("no picture: python3-matplotlib is not installed", said)
        self.assertRegex("\n".join(said), r"PowerSGD rank 1 +60.0 \(60.0 .. 60.0\) +60.0 \(60.0 .. 60.0\) +40.0 kB \*")
        lines = (self.folder / "summary.csv").read_text().splitlines()
        self.assertEqual(len(lines), 1 + 2 * len(catalog.METHODS))
        self.assertIn('100M,8396800,"gradsieve all | f32, plain",in place,20,3600.000,3600.000,3600.000,34000000,2720.000,0,'
                      "0.8333,0.8333,0.8333,slower", lines)


class CommandTest(unittest.TestCase):
    def ended(self, *arguments):
        with contextlib.redirect_stderr(io.StringIO()) as said, self.assertRaises(SystemExit) as ended:
            main.main(list(arguments))
        return f"{ended.exception.code} {said.getvalue()}"

    def test_without_root_it_says_what_is_missing(self):
        with mock.patch("os.geteuid", return_value=1000), mock.patch("shutil.which", return_value=None), \
                mock.patch.dict("os.environ", {"GRADSIEVE_BUILD": "/nowhere"}):
            said = self.ended("--quick")
        for what in ("root: network namespaces", "`tc`: apt install iproute2", "/nowhere/daemon/gradsieved: ./dev build"):
            self.assertIn(what, said)

    def test_too_little_memory_is_told_before(self):
        with mock.patch.object(main, "available_bytes", return_value=2_000_000_000), mock.patch("os.geteuid", return_value=1000):
            self.assertIn("memory: 2.0 GB are available, needed are 8.2 GB for 25,600,000 parameters", self.ended("--sizes", "25600000"))
            self.assertNotIn("memory:", self.ended("--quick"))

    def test_a_signal_whose_exception_was_dropped_comes_again(self):
        class Dropping:
            def __del__(self):  # Python prints what is raised here, and goes on
                os.kill(os.getpid(), signal.SIGTERM)
                self.was_reached = True

        before = {number: signal.getsignal(number) for number in ending.SIGNALS}
        self.addCleanup(lambda: [signal.signal(number, handler) for number, handler in before.items()])
        self.addCleanup(ending._came.clear)
        ending.catch()
        with contextlib.redirect_stderr(io.StringIO()):
            Dropping()
        with self.assertRaises(ending.Ended) as ended:
            ending.check()
        self.assertEqual(ended.exception.number, signal.SIGTERM)

    def test_a_report_of_nothing_is_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            self.assertIn(f"no run.json in {folder}: allowed is a folder in which", self.ended("--report", "--output", folder))

    def test_bad_options_are_refused(self):
        self.assertIn("--rounds is 0: allowed is a whole number from 1", self.ended("--rounds", "0"))
        self.assertIn("--sizes 10: allowed is 50000 or more", self.ended("--sizes", "10"))
        self.assertIn("--rates", self.ended("--rates", "2G"))


if __name__ == "__main__":
    unittest.main()
