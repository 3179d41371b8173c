#!/usr/bin/env python3
"""Waits end: at their deadline, when the daemon dies, and on Ctrl-C; on the main thread and on others."""
import signal
import time
import unittest

from gradsieve import InvalidArgument, _waiting
from python_cluster import Cluster, result_of

PROMISED_S = 1.0  # docs/client.md: a daemon that dies is noticed within a second
SLACK_S = 9.0  # of a loaded machine


class WaitingTest(unittest.TestCase):
    def setUp(self):
        self.cluster = Cluster()
        self.addCleanup(self.cluster.close)

    def start(self, function="wait_alone", **arguments):
        waiter, idle = self.cluster.start_ranks(f"job_ranks:{function}", 2, **arguments)
        waiter.wait_for_line("waiting")
        idle.wait_for_line("idle")
        return waiter, idle

    def test_killed_daemon_is_noticed_by_a_wait(self):
        for in_thread in (False, True):
            with self.subTest(in_thread=in_thread), Cluster() as cluster:
                self.cluster = cluster
                waiter, _ = self.start(seconds=60, in_thread=in_thread)
                since = time.monotonic()
                cluster.kill_daemon()
                ended = float(waiter.wait_for_line("ended "))  # by the rank's own word: its process takes longer to end
                self.assertRegex(result_of(waiter), "^Unavailable: unavailable: ")
                self.assertLess(ended - since, PROMISED_S + SLACK_S)

    def test_late_rank_gives_a_timeout_that_names_the_whole_wait(self):
        for in_thread in (False, True):
            with self.subTest(in_thread=in_thread), Cluster() as cluster:
                self.cluster = cluster
                waiter, _ = self.start(seconds=0.35, in_thread=in_thread)
                self.assertRegex(result_of(waiter, 30), "^Timeout: timeout: .*waited 350 ms for tensor 'weight', step 1")

    def test_interrupt_ends_a_wait(self):
        waiter, _ = self.start(seconds=60)
        waiter.send_signal(signal.SIGINT)
        self.assertRegex(result_of(waiter, 30), "^KeyboardInterrupt")

    def test_interrupted_wait_goes_on_and_brings_the_average(self):
        waiter, idle = self.start("interrupted_then_goes_on")
        waiter.send_signal(signal.SIGINT)
        waiter.wait_for_line("interrupted")
        idle.send_signal(signal.SIGUSR1)
        self.assertEqual(result_of(waiter), [2.0, 2.0, 2.0])
        self.assertEqual(result_of(idle), [2.0, 2.0, 2.0])

    def test_a_wait_without_deadline_is_refused(self):
        for timeout in (None, "1", True):
            with self.subTest(timeout=timeout), self.assertRaisesRegex(TypeError, "every wait has a deadline"):
                _waiting.checked_timeout(timeout)
        with self.assertRaisesRegex(InvalidArgument, "nan: allowed is a number of seconds"):
            _waiting.checked_timeout(float("nan"))


if __name__ == "__main__":
    unittest.main()
