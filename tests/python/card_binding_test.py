#!/usr/bin/env python3
"""Binding device memory from Python, on the emulated card: a daemon that takes its time loses no call. On a node with two GPUs the answer to a
rank's first request waits for the other ranks'. Skipped as a whole in builds without the emulated card."""
import os
import signal
import unittest
import unittest.mock

from python_cluster import Cluster, result_of, skip_program

if not os.environ.get("GRADSIEVE_CUDA_DRIVER"):
    skip_program("this build has no emulated card (--preset emulated)")


class LateAnswerTest(unittest.TestCase):
    def test_a_bind_is_waited_for_in_slices_and_goes_on_after_a_timeout(self):
        with unittest.mock.patch.dict(os.environ, {"GRADSIEVE_EMULATED_GPUS": "2"}), Cluster() as cluster:
            waiter, idle = cluster.start_ranks("card_ranks:bind_late", 2)
            idle.wait_for_line("idle")
            waiter.wait_for_line("late")
            idle.send_signal(signal.SIGUSR1)
            said, average = result_of(waiter)
            self.assertRegex(said, "^timeout: .*waited 350 ms for gradsieved's answer to the request to bind device memory of tensor 'weight'")
            self.assertEqual(average, [1.5, 1.5, 1.5])
            self.assertEqual(result_of(idle), ["", average])


if __name__ == "__main__":
    unittest.main()
