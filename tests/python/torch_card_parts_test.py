#!/usr/bin/env python3
"""What gradsieve.torch does with gradients on a GPU, part by part, without daemons and without a GPU: what is bound and when, which memory is
handed in, on which streams, and what a lost daemon means there. Skipped as a whole where Debian's python3-torch is not installed."""
import unittest
import unittest.mock

from python_cluster import require_module

require_module("torch", "python3-torch")
import torch

import gradsieve
import gradsieve.torch
from gradsieve.torch.member import Member
from gradsieve.torch.members import Members
from gradsieve.torch.micro_batches import MicroBatches
from gradsieve.torch.streams import StreamOrder
from torch_card import OnCard
from torch_parts import bare_state


class Stream:
    """Notes whom it waited for."""

    def __init__(self, number):
        self.cuda_stream, self.waited_for = number, []

    def wait_stream(self, other):
        self.waited_for.append(other.cuda_stream)


class OnCardCase(unittest.TestCase):
    """A current stream that a test may change, and GPU memory that is the host's."""

    def setUp(self):
        self.stream = Stream(7)
        for name, put in (("torch.cuda.current_stream", lambda device=None: self.stream),
                          ("gradsieve.torch.member.zeros_on", lambda device, shape, what: on_card(shape))):
            patch = unittest.mock.patch(name, put)
            patch.start()
            self.addCleanup(patch.stop)


def on_card(shape, dtype=torch.float32):
    return torch.zeros(shape, dtype=dtype).as_subclass(OnCard)


class FakeJob:
    """Notes what is bound: (name, buffer), and which binds were one round trip."""

    def __init__(self):
        self.bound, self.binds, self.refusal = [], 0, None

    def add_tensor(self, name, shape, **options):
        tensor = unittest.mock.Mock(on_device=options["on_device"], shape=shape, options=options)
        tensor.name = name
        return tensor

    def bind_devices(self, bindings, timeout):
        self.binds += 1
        if self.refusal:
            raise self.refusal
        self.bound += [(tensor.name, buffer) for tensor, buffer in bindings]


class BindingTest(OnCardCase):
    """Which memory is bound, and when."""

    def members(self, *parameters, **options):
        self.job = FakeJob()
        self.all = Members(self.job, [(f"p{place}", parameter) for place, parameter in enumerate(parameters)], "", **options)
        return list(self.all)

    def bound(self, member, gradient, weight=1.0):
        """What a bind of the gradient binds: buffers."""
        before = len(self.job.bound)
        self.all.bind([(member, gradient)], 1.0, weight)
        return [buffer for _, buffer in self.job.bound[before:]]

    def test_a_gradient_is_bound_once_and_again_when_it_moves_or_its_stream_changes(self):
        member, = self.members(torch.nn.Parameter(on_card((2, 3), torch.bfloat16)))
        gradient, other = on_card((2, 3), torch.bfloat16), on_card((2, 3), torch.bfloat16)
        first, = self.bound(member, gradient)
        self.assertEqual((first.pointer, first.elements, first.element_type, first.stream, first.second_moment),
                         (gradient.data_ptr(), 6, gradsieve.ElementType.BF16, 7, 0))
        self.assertEqual(self.bound(member, gradient), [])
        self.assertEqual([buffer.pointer for buffer in self.bound(member, other)], [other.data_ptr()])
        self.stream = Stream(8)
        self.assertEqual([buffer.stream for buffer in self.bound(member, other)], [8])

    def test_a_bind_that_failed_is_tried_again(self):
        member, = self.members(torch.nn.Parameter(on_card((2, 3))))
        self.job.refusal = gradsieve.Unavailable("gone")
        with self.assertRaises(gradsieve.Unavailable):
            self.bound(member, on_card((2, 3)))
        self.job.refusal = None
        self.assertEqual(len(self.bound(member, on_card((2, 3)))), 1)

    def test_what_moved_of_many_is_bound_in_one_round_trip(self):
        members = self.members(*(torch.nn.Parameter(on_card((3,))) for _ in range(4)))
        pairs = [(member, on_card((3,))) for member in members]
        self.all.bind(pairs, 1.0)
        self.all.bind(pairs, 1.0)
        self.assertEqual((self.job.binds, len(self.job.bound)), (1, 4))

    def test_several_slices_are_a_slab_of_float32_whatever_the_gradient_is(self):
        member, = self.members(torch.nn.Parameter(on_card((2, 3), torch.float16)), slices=4)
        self.assertEqual(member.tensor.options["samples_max"], 4)
        buffer, = self.bound(member, on_card((2, 3), torch.float16))
        self.assertEqual((buffer.pointer, buffer.elements, buffer.element_type, buffer.sample_stride_elements),
                         (member.slice(0).data_ptr(), 6, gradsieve.ElementType.F32, 0))
        self.assertEqual(member.slice(3).data_ptr() - member.slice(0).data_ptr(), 3 * 6 * 4)
        self.assertEqual(self.bound(member, on_card((2, 3), torch.float16)), [])  # the gradient may lie anywhere

    def test_a_second_moment_is_bound_beside_the_gradient_itself(self):
        parameter = torch.nn.Parameter(on_card((2, 3)))
        member, = self.members(parameter, slices=4, moments=[parameter])
        self.assertEqual((member.tensor.options["samples_max"], member.tensor.options["has_second_moment"]), (1, True))
        gradient = on_card((2, 3))
        buffer, = self.bound(member, gradient)
        self.assertEqual(buffer.pointer, gradient.data_ptr())
        member.write_second_moment(torch.full((2, 3), 2.0), 5, 0.5)
        moment = buffer.owner[1]
        self.assertEqual((buffer.second_moment, moment.tolist()), (moment.data_ptr(), [[2.0 * 2.5 ** 2] * 3] * 2))

    def test_another_order_in_memory_goes_through_a_slab_in_the_order_of_indices(self):
        values = torch.arange(2 * 3 * 4 * 5, dtype=torch.float32).reshape(2, 3, 4, 5)
        for gradient in (values.to(memory_format=torch.channels_last), values.transpose(0, 1).contiguous().transpose(0, 1)):
            gradient = gradient.as_subclass(OnCard)
            member, = self.members(torch.nn.Parameter(gradient.clone()))
            buffer, = self.bound(member, gradient)
            member.hand_in(1, gradient, 1.0)
            self.assertNotEqual(buffer.pointer, gradient.data_ptr())
            self.assertTrue(member.slice(0).is_contiguous() and torch.equal(member.slice(0), values))
            member.slice(0).mul_(2.0)  # as the daemon writes it
            member.deliver(0, gradient)
            self.assertTrue(torch.equal(gradient, 2 * values))

    def test_weighted_halves_are_widened_before_and_stay_in_a_slab(self):
        member, = self.members(torch.nn.Parameter(on_card((2,), torch.float16)))
        gradient = torch.tensor([60000.0, 2049.0]).half().as_subclass(OnCard)
        self.assertEqual([buffer.pointer for buffer in self.bound(member, gradient)], [gradient.data_ptr()])
        slab, = self.bound(member, gradient, 1.7)
        member.hand_in(2, gradient, 1.0, 1.7)
        self.assertEqual(member.slice(0).tolist(), [(value.float() * 1.7).item() for value in gradient])  # beyond float16's range
        self.assertEqual(gradient[0].item(), 60000.0)
        self.assertEqual(self.bound(member, gradient), [])
        self.assertEqual(slab.pointer, member.slice(0).data_ptr())

    def test_weighted_float32_is_multiplied_where_it_lies(self):
        member, = self.members(torch.nn.Parameter(on_card((2,))))
        gradient = torch.tensor([1.0, 2.0]).as_subclass(OnCard)
        self.assertEqual([buffer.pointer for buffer in self.bound(member, gradient, 3.0)], [gradient.data_ptr()])
        member.hand_in(1, gradient, 1.0, 3.0)
        member.deliver(0, gradient)
        self.assertEqual(gradient.tolist(), [3.0, 6.0])

    def test_a_gradient_on_another_device_than_its_parameter_was_is_refused_by_name(self):
        member, = self.members(torch.nn.Parameter(on_card((2,))))
        with self.assertRaisesRegex(gradsieve.InvalidArgument, "'p0' is on cpu: allowed is a GPU, where .*; move"):
            self.all.bind([(member, torch.zeros(2))], 1.0)
        member, = self.members(torch.nn.Parameter(torch.zeros(2)))
        with self.assertRaisesRegex(gradsieve.InvalidArgument, "'p0' is on .*: allowed is the host, where .*; move"):
            self.all.bind([(member, on_card((2,)))], 1.0)

    def test_a_parameter_without_elements_and_one_on_the_host_are_not_bound(self):
        empty, host = self.members(torch.nn.Parameter(on_card((0, 3))), torch.nn.Parameter(torch.zeros(3)), slices=2)
        self.all.bind([(empty, on_card((0, 3))), (host, torch.zeros(3))], 1.0)
        self.assertEqual((empty.tensor.options["on_device"], self.job.binds), (False, 0))

    def test_a_card_without_room_is_told_before_any_step(self):
        full = gradsieve.ResourceExhausted("full")
        with unittest.mock.patch("gradsieve.torch.member.zeros_on", side_effect=full), self.assertRaisesRegex(gradsieve.ResourceExhausted, "full"):
            self.members(torch.nn.Parameter(on_card((2, 3))), slices=4)


class NoRoomTest(unittest.TestCase):
    def test_memory_that_is_not_there_is_named_with_its_bytes(self):
        with unittest.mock.patch("torch.zeros", side_effect=torch.cuda.OutOfMemoryError("of 80 GiB")):
            with self.assertRaisesRegex(gradsieve.ResourceExhausted, "4 slices of 'w' of 96 bytes on cuda:0: allowed is .*; use fewer .*80 GiB"):
                gradsieve.torch.member.zeros_on(torch.device("cuda:0"), (4, 2, 3), "4 slices of 'w'")


class StreamsTest(OnCardCase):
    """Work on one slab from several streams is in the order in which it is enqueued."""

    def test_a_change_of_streams_waits_for_the_one_before_and_the_same_stream_for_nothing(self):
        order, memory = StreamOrder(), on_card((1,))
        first, second = self.stream, Stream(8)
        order.enter(memory)
        order.enter(memory)
        self.stream = second
        order.enter(memory)
        self.stream = first
        order.note(memory)  # the host knows that nothing is pending
        self.stream = second
        order.enter(memory)
        self.assertEqual((first.waited_for, second.waited_for), ([], [7, 7]))

    def test_memory_of_the_host_has_no_streams(self):
        self.stream = None
        StreamOrder().enter(torch.zeros(1))
        StreamOrder().note(torch.zeros(1))
        StreamOrder().hand_over(torch.zeros(1))

    def test_what_is_handed_over_is_not_reused_before_its_new_stream_is_through(self):
        order, memory = StreamOrder(), on_card((1,))
        memory.record_stream = unittest.mock.Mock()
        order.enter(memory)
        self.stream = Stream(9)
        order.hand_over(memory)
        memory.record_stream.assert_called_once_with(self.stream)
        self.assertEqual(self.stream.waited_for, [7])

    def test_slices_written_on_autograds_stream_are_handed_in_behind_it(self):
        parameter = torch.nn.Parameter(on_card((2,)))
        tensor = unittest.mock.Mock(on_device=True, shape=(2,))
        member = Member("weight", parameter, tensor)
        member.reserve(3, False)
        batches = MicroBatches(torch.nn.Identity(), [member], 3)
        for value in (1.0, 2.0):
            (parameter * value).sum().backward()
        self.stream = hook_stream = Stream(8)
        self.assertEqual(batches.settle(member, 0.5), 2)
        self.assertEqual(hook_stream.waited_for, [7])
        self.assertEqual([float(member.slice(index)[0]) for index in range(2)], [1.0, 2.0])
        self.stream = Stream(9)  # the waiter's: what it copies is there, says the daemon
        member.deliver(0, on_card((2,)))
        self.assertEqual(self.stream.waited_for, [])
        batches.end_step()
        self.stream = next_stream = Stream(7)
        parameter.sum().backward()
        self.assertEqual(next_stream.waited_for, [9])  # not before the average is out of the slab

    def test_a_slab_that_the_daemon_reads_still_is_not_written(self):
        parameter = torch.nn.Parameter(on_card((2,)))
        member = Member("weight", parameter, unittest.mock.Mock(on_device=True, shape=(2,)))
        member.reserve(2, False)
        member.tensor.require_settled.side_effect = gradsieve.Busy("open")
        batches = MicroBatches(torch.nn.Identity(), [member], 2)
        parameter.sum().backward()
        self.assertEqual((batches.settle(member, 1.0), member.slice(0).tolist()), (0, [0.0, 0.0]))


class LostOnCardTest(unittest.TestCase):
    """A daemon is lost while buckets lie on a GPU, without a GPU: whether a bucket's step raises is the same on all ranks."""

    def setUp(self):
        self.fallback = object.__new__(gradsieve.torch.fallback.Fallback)
        self.fallback.is_taken, self.fallback.steps, self.fallback.average = False, 0, unittest.mock.Mock()
        self.fallback.agree = self.agree
        self.is_lost = False
        self.state = bare_state(self.fallback)
        patch = unittest.mock.patch("torch.cuda.current_stream", return_value=unittest.mock.Mock())
        patch.start()
        self.addCleanup(patch.stop)

    def agree(self, missing, device):
        self.fallback.is_taken |= self.is_lost
        return self.fallback.is_taken

    def take(self, step, handed_in, error=None, is_cuda=True):
        """What the waiter makes of a bucket: "raised" or "plain"."""
        members = [(unittest.mock.Mock(), unittest.mock.Mock(is_cuda=is_cuda))] if handed_in else []
        work = gradsieve.torch.ddp._Work(step, unittest.mock.Mock(is_cuda=is_cuda), members, None, True, error)
        try:
            self.state._take(work)
        except gradsieve.GradsieveError:
            return "raised"
        return "plain" if self.fallback.is_taken else "averaged"

    def test_every_bucket_of_the_lost_step_raises_and_the_next_step_goes_on(self):
        for name, handed_in, error in (("lost", True, gradsieve.Unavailable("gone")), ("other rank", True, None),
                                       ("lost before it was handed in", False, gradsieve.Unavailable("gone"))):
            with self.subTest(rank=name):
                self.setUp()
                self.assertEqual(self.take(4, True), "averaged")
                self.is_lost = True
                self.assertEqual(self.take(5, handed_in, error), "raised")
                self.assertEqual(self.take(5, True), "raised")  # was on its way already
                self.assertEqual(self.take(5, False), "raised")  # came after the loss was known
                self.fallback.average.assert_not_called()
                self.assertEqual(self.take(6, False), "plain")
                self.fallback.average.assert_called_once()

    def test_the_plain_path_from_the_start_loses_no_step(self):
        self.fallback.is_taken = True
        self.assertEqual(self.take(1, False), "plain")

    def test_on_the_host_the_lost_step_takes_the_plain_path(self):
        self.is_lost = True
        self.assertEqual(self.take(5, True, is_cuda=False), "plain")


if __name__ == "__main__":
    unittest.main()
