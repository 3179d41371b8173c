#!/usr/bin/env python3
"""What bind_device reads off the arrays of frameworks, without a GPU: memory is described by stand-ins, and a bind
reaches the driver, which is missing or refuses."""
import os
import unittest
import unittest.mock

import gradsieve
from gradsieve import DeviceBuffer, ElementType
from gradsieve.devices import device_buffer_of


class OnCard:
    """As CuPy, Numba and PyTorch describe their arrays."""

    def __init__(self, **changes):
        self.__cuda_array_interface__ = {"shape": (2, 3), "typestr": "<f4", "data": (0x7000, False), "version": 3,
                                         "strides": None, "stream": None, **changes}


class DevicesTest(unittest.TestCase):
    def test_interface_gives_pointer_elements_type_and_stream(self):
        memory = OnCard(typestr="<f2", strides=(6, 2), stream=7)
        found = device_buffer_of(memory)
        self.assertEqual((found.pointer, found.elements, found.element_type, found.stream), (0x7000, 6, ElementType.F16, 7))
        self.assertIs(found.owner, memory)
        self.assertEqual(device_buffer_of(memory, 9).stream, 9)

    def test_unfit_memory_is_refused_with_what_to_do(self):
        for changes, text in (({"typestr": "<f8"}, "type <f8: allowed are float32.*; convert"),
                              ({"data": (0x7000, True)}, "read-only: allowed is .*; pass a writable"),
                              ({"strides": (4, 8)}, "strided: allowed is contiguous.*; make it contiguous")):
            with self.subTest(text=text), self.assertRaisesRegex(gradsieve.InvalidArgument, text):
                device_buffer_of(OnCard(**changes))

    def test_strides_of_single_elements_do_not_count(self):
        self.assertEqual(device_buffer_of(OnCard(shape=(1, 6), strides=(999, 4))).elements, 6)

    def test_anything_else_is_refused_by_type(self):
        with self.assertRaisesRegex(gradsieve.InvalidArgument, "bytes given: allowed is a DeviceBuffer"):
            device_buffer_of(b"123")

    def test_a_producer_that_refuses_is_an_invalid_argument_with_its_words(self):
        refusing = unittest.mock.Mock(spec=["__dlpack__", "__dlpack_device__"], __dlpack_device__=lambda: (2, 0),
                                      __dlpack__=unittest.mock.Mock(side_effect=BufferError("is read-only")))
        with self.assertRaisesRegex(gradsieve.InvalidArgument, r"__dlpack__ of Mock refuses \(is read-only\): allowed is .*; pass"):
            device_buffer_of(refusing)

    def test_a_bind_reaches_the_driver_which_is_missing(self):
        os.environ["GRADSIEVE_CUDA_DRIVER"] = "/nowhere/libcuda.so.1"
        self.addCleanup(os.environ.pop, "GRADSIEVE_CUDA_DRIVER")
        job = gradsieve.Job("card", 0, 1)
        tensor = job.add_tensor("weight", (2, 3), on_device=True)
        with self.assertRaisesRegex(gradsieve.Unavailable, "/nowhere/libcuda.so.1"):
            tensor.bind_device(OnCard())
        with self.assertRaisesRegex(gradsieve.Unavailable, "/nowhere/libcuda.so.1"):
            job.bind_devices([(tensor, DeviceBuffer(0x7000, 6))])

    def test_a_tensor_on_the_host_is_not_bound(self):
        job = gradsieve.Job("card", 0, 1)
        with self.assertRaisesRegex(gradsieve.GradsieveError, "weight"):
            job.add_tensor("weight", (2, 3)).bind_device(OnCard())


if __name__ == "__main__":
    unittest.main()
