#!/usr/bin/env python3
"""Views as numpy arrays, and numpy arrays handed in. Skipped as a whole where numpy is not installed."""
import unittest

from python_cluster import Cluster, require_module

require_module("numpy", "python3-numpy")
import numpy

import gradsieve
from gradsieve.devices import device_buffer_of


class NumpyTest(unittest.TestCase):
    def setUp(self):
        self.cluster = Cluster()
        self.addCleanup(self.cluster.close)
        self.job = gradsieve.Job("numpy", 0, 1, codec="all | f32", socket_path=self.cluster.socket())
        self.weight = self.job.add_tensor("weight", (2, 3), numpy.float32)
        self.empty = self.job.add_tensor("empty", (0, 4), group="other")
        self.job.start(30)

    def step(self, number, values):
        self.weight.submit(number, values)
        return self.weight.wait(30)

    def test_the_gradient_is_written_in_place(self):
        view = self.weight.gradient
        self.assertEqual((type(view), view.dtype, view.shape), (numpy.ndarray, numpy.float32, (2, 3)))
        view[:] = [[1, 2, 3], [4, 5, 6]]
        self.weight.submit(1)
        numpy.testing.assert_array_equal(self.weight.wait(30), [[1, 2, 3], [4, 5, 6]])
        self.assertEqual(self.empty.gradient.shape, (0, 4))

    def test_a_result_cannot_be_made_writable(self):
        result = self.step(1, numpy.ones((2, 3), numpy.float32))
        with self.assertRaises(ValueError):
            result[:] = 1
        with self.assertRaises(ValueError):
            result.flags.writeable = True

    def test_halves_are_widened_exactly_and_strides_are_followed(self):
        values = numpy.array([[1.5, -2, 0.25], [65504, 6e-8, -0.0]], numpy.float16)
        numpy.testing.assert_array_equal(self.step(1, values), values.astype(numpy.float32))
        wide = numpy.arange(12, dtype=numpy.float32).reshape(2, 6)[:, ::2]
        numpy.testing.assert_array_equal(self.step(2, wide), [[0, 2, 4], [6, 8, 10]])

    def test_doubles_are_refused(self):
        with self.assertRaisesRegex(gradsieve.InvalidArgument, "buffer format 'd': allowed are float32"):
            self.weight.write(numpy.zeros((2, 3)))

    def test_views_outlive_the_job(self):
        view = self.weight.gradient[0, 1:]
        self.job.detach(30)
        del self.job, self.weight, self.empty
        view[:] = 3
        numpy.testing.assert_array_equal(view, [3, 3])

    def test_host_memory_is_no_device_memory(self):
        with self.assertRaisesRegex(gradsieve.InvalidArgument, "DLPack device type 1: allowed is CUDA memory"):
            device_buffer_of(numpy.zeros(3, numpy.float32))


if __name__ == "__main__":
    unittest.main()
