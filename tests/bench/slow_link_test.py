#!/usr/bin/env python3
"""`./dev bench slow-link` at its smallest, in earnest: namespaces, a limited link, daemons, PyTorch. Asserts what holds on any
machine, however busy: bytes, that the limit is felt, equal averages, and that nothing is left behind. Needs root."""
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from python_cluster import BUILD, Process, require_module, skip_program

require_module("torch", "python3-torch")

from lab.namespaces import remove_stale  # noqa: E402
from slow_link import catalog, link, main, results  # noqa: E402

if os.geteuid() != 0:
    skip_program("network namespaces need root")
if main.missing(BUILD):
    skip_program("missing: " + "; ".join(main.missing(BUILD)))
try:
    with link.Link() as tried:
        tried.shape(link.RATES["100M"])
except link.LinkError as error:
    skip_program(f"no limited link can be made here: {error}")

DEADLINE_S = 400


def namespaces_of(pid):
    return [entry.name for entry in link.NAMESPACES.glob(f"{link.PREFIX}*-{pid}")]


def processes_naming(text):
    """Command lines of processes that name `text`."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = entry.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if text in line:
            found.append(line)
    return found


class SlowLinkTest(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(prefix="gradsieve-slow-link-test-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.output, self.temporary = self.folder / "output", self.folder / "temporary"
        self.temporary.mkdir()

    def start(self, *options):
        """The command, with a folder for temporary files of its own."""
        process = Process([sys.executable, "-m", "slow_link.main", "--quick", "--output", self.output, *options],
                          {**os.environ, "TMPDIR": str(self.temporary)})
        self.addCleanup(process.end)
        return process

    def wait_until_nothing_is_left(self, pid):
        """No process, file or namespace. Processes that the kernel ends for their parent's death take a moment."""
        watchdog = subprocess.Popen(["timeout", str(DEADLINE_S), "cat"], stdin=subprocess.PIPE)
        self.addCleanup(watchdog.wait)
        self.addCleanup(watchdog.stdin.close)
        while processes_naming(str(self.temporary)):
            self.assertIsNone(watchdog.poll(), processes_naming(str(self.temporary)))
        self.assertEqual(namespaces_of(pid), [])

    def test_it_measures_and_leaves_nothing(self):
        process = self.start("--rounds", "2")
        self.assertEqual(process.wait_for_exit(DEADLINE_S), 0, process.output)
        cells = results.read_raw(self.output / "raw.csv")["100M", main.QUICK_SIZE]
        self.assertEqual(set(cells), {(name, mode) for name in catalog.METHODS for mode in catalog.MODES})
        exact_bytes = 4 * main.QUICK_SIZE
        rate = link.RATES["100M"]
        for (name, mode), cell in cells.items():
            with self.subTest(name=name, mode=mode):
                self.assertEqual(len(cell.ms), 2)
                if name in catalog.EXACT:
                    self.assertGreater(cell.node_bytes, exact_bytes)
                    self.assertLess(cell.node_bytes, 1.2 * exact_bytes)
                    self.assertGreater(min(cell.ms.values()), 1000 * link.SHARE_MIN * rate.wire_s(exact_bytes))
                elif name == catalog.FP16.name:
                    self.assertGreater(min(cell.ms.values()), 1000 * link.SHARE_MIN * rate.wire_s(exact_bytes / 2))
                else:
                    self.assertLess(cell.node_bytes, exact_bytes / 8)
        for name in catalog.METHODS:
            self.assertIn("\n" + name, process.output)
        self.assertRegex(process.output, r"single message of +1,0\d\d,\d\d\d B: +\d+\.\d\d ms, at the rate +8\d\.\d\d ms\n")
        self.assertEqual(len((self.output / "summary.csv").read_text().splitlines()), 1 + len(cells))
        foreseen = results.read_conditions(self.output)["plans"][f"100M {main.QUICK_SIZE}"]
        self.assertGreaterEqual(foreseen[catalog.GLOO.name], 1000 * rate.wire_s(exact_bytes))
        self.assertIn(catalog.OUR_DEFAULT.name, foreseen)
        self.wait_until_nothing_is_left(process.pid)
        self.assertEqual(list(self.temporary.iterdir()), [])

    def test_interrupted_it_leaves_nothing(self):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) == signal.SIG_IGN:  # as under nohup, for its children too
                continue
            with self.subTest(number):
                process = self.start()
                process.wait_for_line("-- 262,144 parameters: four daemons", DEADLINE_S)
                self.assertEqual(len(namespaces_of(process.pid)), 2)
                process.send_signal(number)
                self.assertEqual(process.wait_for_exit(DEADLINE_S), 128 + number, process.output)
                self.assertIn("slow-link: interrupted; what was measured lies in", process.output)
                self.wait_until_nothing_is_left(process.pid)
                self.assertEqual(list(self.temporary.iterdir()), [])

    def test_what_a_killed_run_left_the_next_one_removes(self):
        process = self.start()
        process.wait_for_line("-- 262,144 parameters: four daemons", DEADLINE_S)
        process.send_signal(signal.SIGKILL)
        process.wait_for_exit(DEADLINE_S)
        self.assertEqual(len(namespaces_of(process.pid)), 2)
        remove_stale(link.PREFIX)
        self.wait_until_nothing_is_left(process.pid)


class LinkTest(unittest.TestCase):
    def test_a_link_that_does_not_limit_is_refused(self):
        rate = link.RATES["100M"]
        large = link.Rate("100M", rate.bits_per_s, 256)
        with link.Link() as made:
            for wrong in (None, large):
                made.shape(wrong)
                with self.assertRaises(link.LinkError) as refused:
                    made.check([137_000], rate)
                self.assertRegex(str(refused.exception), r"a single message of 137000 B took \d+\.\d\d ms at 100M, allowed are 8\.77 ms "
                                 "or more .*: use a smaller burst")
            made.check([10_000], rate)  # below 5 bursts: exempt
            made.shape(rate)
            took = made.check([137_000], rate)[137_000]
            self.assertTrue(re.search("tbf .*rate 100Mbit burst 16Kb lat 50ms", made.limits()[1]), made.limits())
            self.assertGreater(took, link.SHARE_MIN * rate.wire_s(137_000))


if __name__ == "__main__":
    unittest.main()
