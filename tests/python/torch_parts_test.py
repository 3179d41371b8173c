#!/usr/bin/env python3
"""Parts of gradsieve.torch by themselves, without daemons: the waiter, slices, scales, and what is refused. What is done with GPUs:
torch_card_parts_test.py. Skipped as a whole where Debian's python3-torch is not installed."""
import queue
import unittest
import unittest.mock

from python_cluster import require_module

require_module("torch", "python3-torch")
import torch

import gradsieve
import gradsieve.torch
from torch_parts import bare_state
from gradsieve.torch.member import Member
from gradsieve.torch.micro_batches import MicroBatches, check_micro_batches
from gradsieve.torch.probe import Probe, Prober, check_probe_every, compare


class WaiterTest(unittest.TestCase):
    """The waiter thread's loop: every Future ends, whatever happens to one of them."""

    def run_waiter(self, *futures):
        state = bare_state()
        state._queue = queue.SimpleQueue()
        for step, future in enumerate(futures, 1):
            state._queue.put(gradsieve.torch.ddp._Work(step, torch.zeros(2), [], future, True))
        state._queue.put(None)
        state._wait_for_work()
        return state

    def test_a_future_that_takes_no_result_is_ended_with_the_error_and_the_next_one_has_its_own(self):
        class Refusing(torch.futures.Future):
            def set_result(self, result):
                if isinstance(result, torch.Tensor):
                    raise RuntimeError("not on this device")
                super().set_result(result)

        refusing, good = Refusing(), torch.futures.Future()
        state = self.run_waiter(refusing, good)
        with self.assertRaisesRegex(gradsieve.GradsieveError, "averaging step 1: not on this device"):
            refusing.wait()
        self.assertEqual(good.wait().tolist(), [0.0, 0.0])
        self.assertRegex(str(state.error), "not on this device")

    def test_a_future_that_takes_nothing_does_not_end_the_thread(self):
        nothing = unittest.mock.Mock()
        nothing.set_result.side_effect = nothing.set_exception.side_effect = RuntimeError("broken")
        good = torch.futures.Future()
        self.run_waiter(nothing, good)
        self.assertEqual(good.wait().tolist(), [0.0, 0.0])


class MicroBatchesTest(unittest.TestCase):
    """Slices without a daemon."""

    def setUp(self):
        self.members = []
        for name in ("always", "sometimes"):
            member = Member(name, torch.nn.Parameter(torch.zeros(2)), unittest.mock.Mock(on_device=False))
            member._slabs = {index: torch.full((2,), 77.0) for index in range(3)}
            self.members.append(member)
        self.model = torch.nn.Identity()
        self.batches = MicroBatches(self.model, self.members, 3)

    def backward(self, *values):
        """A pass that gives each member that gradient, or none; in this order."""
        for member, value in zip(self.members, values):
            if value:
                (member.parameter * value).sum().backward()

    def settled(self, member, weight=1.0):
        return [float(member.slice(index)[0]) for index in range(self.batches.settle(member, weight))]

    def test_slices_are_the_passes_times_their_number_and_weight(self):
        self.backward(1.0, 10.0)
        self.backward(2.0, 20.0)
        self.assertEqual(self.settled(self.members[0]), [2.0, 4.0])
        self.assertEqual(self.settled(self.members[1], 0.5), [10.0, 20.0])

    def test_a_pass_without_a_gradient_counts_as_zero_whatever_the_slice_held(self):
        self.backward(1.0, 10.0)
        self.backward(2.0, 0)
        self.backward(3.0, 30.0)
        self.assertEqual(self.settled(self.members[0]), [3.0, 6.0, 9.0])
        self.assertEqual(self.settled(self.members[1]), [30.0, 0.0, 90.0])

    def test_a_call_of_the_model_begins_a_micro_batch_for_a_layer_that_was_left_out_before(self):
        for values in ((1.0, 0), (0, 20.0)):
            self.model(None)
            with torch.no_grad():
                self.model(None)  # as for an evaluation
            self.backward(*values)
        self.assertEqual(self.settled(self.members[0]), [2.0, 0.0])
        self.assertEqual(self.settled(self.members[1]), [0.0, 40.0])

    def test_calls_without_a_pass_begin_nothing(self):
        self.backward(1.0, 0)
        with torch.no_grad():
            self.model(None)
        self.backward(0, 20.0)
        self.assertEqual((self.settled(self.members[0]), self.settled(self.members[1])), ([1.0], [20.0]))

    def test_a_parameter_that_no_pass_reached_has_no_slices_and_a_new_step_begins_anew(self):
        self.backward(1.0, 0)
        self.assertEqual((self.settled(self.members[0]), self.settled(self.members[1])), ([1.0], []))
        self.batches.end_step()
        self.backward(5.0, 50.0)
        self.assertEqual((self.settled(self.members[0]), self.settled(self.members[1])), ([5.0], [50.0]))

    def test_a_slab_that_the_daemon_reads_still_is_not_written(self):
        self.members[0].tensor.require_settled.side_effect = [gradsieve.Busy("open"), None]
        self.backward(1.0, 10.0)
        self.assertEqual(float(self.members[0].slice(0)[0]), 77.0)
        self.backward(2.0, 20.0)
        self.assertEqual(self.settled(self.members[0]), [])  # the sum is handed in instead, or says that it cannot be
        self.assertEqual(self.settled(self.members[1]), [20.0, 40.0])

    def test_numbers_out_of_range_are_refused(self):
        for number in (0, 257, 1.5):
            with self.assertRaisesRegex(gradsieve.InvalidArgument, f"micro_batches is {number}: allowed is 1 .. 256; give"):
                check_micro_batches(number)
        self.assertEqual(check_micro_batches(256), 256)


class ProbeTest(unittest.TestCase):
    def test_angle_and_error_are_those_of_vectors(self):
        probe = compare(4, torch.tensor([1.0, 0.0]), torch.tensor([1.0, 1.0]))
        self.assertEqual(probe.step, 4)
        self.assertAlmostEqual(probe.cosine, 0.5 ** 0.5)
        self.assertAlmostEqual(probe.relative_error, 0.5 ** 0.5)

    def test_what_is_not_defined_is_none(self):
        zero, one, nan = torch.zeros(2), torch.ones(2), torch.full((2,), float("nan"))
        self.assertEqual(compare(1, one, zero), Probe(1, None, None))
        self.assertEqual(compare(1, zero, one), Probe(1, None, 1.0))
        self.assertEqual(compare(1, nan, one), Probe(1, None, None))

    def test_a_negative_number_of_steps_is_refused(self):
        with self.assertRaisesRegex(gradsieve.InvalidArgument, "probe_every is -1: allowed is 0"):
            check_probe_every(-1)


class ScaleTest(unittest.TestCase):
    def test_the_loss_scale_is_read_once_a_step(self):
        scaler = unittest.mock.Mock()
        scaler.get_scale.side_effect = [8.0, 4.0]
        parameters = [torch.nn.Parameter(torch.zeros(1)) for _ in range(3)]
        optimizer = torch.optim.SGD(parameters, 0.5)
        scale = gradsieve.torch.members.Scale(optimizer, scaler)
        self.assertEqual([scale.of(parameter, 1) for parameter in parameters], [16.0] * 3)
        self.assertEqual([scale.of(parameter, 2) for parameter in parameters], [8.0] * 3)
        self.assertEqual(scaler.get_scale.call_count, 2)

    def test_a_learning_rate_of_zero_keeps_the_last_scale(self):
        parameter = torch.nn.Parameter(torch.zeros(1))
        optimizer = torch.optim.SGD([parameter], 0.5)
        scale = gradsieve.torch.members.Scale(optimizer, None)
        self.assertEqual(scale.of(parameter, 1), 2.0)
        optimizer.param_groups[0]["lr"] = 0.0
        self.assertEqual(scale.of(parameter, 2), 2.0)


class RefusalsTest(unittest.TestCase):
    """Before anybody is asked: no daemon, no process group."""

    def check(self, error, words, model, **options):
        with self.assertRaisesRegex(error, words):
            gradsieve.torch.Averager(model, "refused", **options)

    def test_sparse_gradients_are_refused_by_layer(self):
        model = torch.nn.Sequential(torch.nn.Embedding(10, 3, sparse=True))
        self.check(gradsieve.Unimplemented, "layer '0' makes sparse gradients.*docs/python.md", model)

    def test_fsdp_and_zero_are_refused_by_name(self):
        for name, words in (("FullyShardedDataParallel", "FSDP"), ("DeepSpeedEngine", "ZeRO")):
            model = torch.nn.Sequential(type(name, (torch.nn.Linear,), {})(2, 2))
            self.check(gradsieve.Unimplemented, f"{name}: .*{words}.*docs/python.md", model)
        optimizer = type("DeepSpeedZeroOptimizer", (), {"param_groups": []})()
        self.check(gradsieve.Unimplemented, "DeepSpeedZeroOptimizer: ZeRO-2", torch.nn.Linear(2, 2), optimizer=optimizer)

    def test_other_element_types_are_refused_by_parameter(self):
        self.check(gradsieve.InvalidArgument, "'weight' is torch.float64: allowed are float32", torch.nn.Linear(2, 2).double())

    def test_a_frozen_model_is_refused(self):
        self.check(gradsieve.InvalidArgument, "0 parameters", torch.nn.Linear(2, 2).requires_grad_(False))

    def test_register_wants_ddp_and_known_fallbacks(self):
        with self.assertRaisesRegex(gradsieve.InvalidArgument, "model is a Linear: allowed is a DistributedDataParallel"):
            gradsieve.torch.register(torch.nn.Linear(2, 2), "refused")
        with self.assertRaisesRegex(gradsieve.InvalidArgument, "fallback is 'nccl': allowed is None"):
            gradsieve.torch.fallback.check_fallback("nccl")

    def test_a_fallback_for_a_part_of_the_ranks_is_refused(self):
        part = object()
        with unittest.mock.patch("torch.distributed.get_world_size", side_effect=lambda group=None: 2 if group is part else 4), \
                unittest.mock.patch("torch.distributed.new_group") as new_group:
            with self.assertRaisesRegex(gradsieve.Unimplemented, "over 2 of 4 ranks: allowed is .*all ranks.*; use fallback=None"):
                gradsieve.torch.fallback.Fallback(part)
            with self.assertRaisesRegex(gradsieve.Unimplemented, "probe_every is 5 .* over 2 of 4 ranks: allowed is .*all ranks; use"):
                Prober(part, 5)
            new_group.assert_not_called()

    def test_second_moments_of_another_model_are_refused(self):
        moments = gradsieve.torch.SecondMoments(torch.nn.Linear(2, 2))
        with self.assertRaisesRegex(gradsieve.InvalidArgument, "covers 0 of the model's parameters: allowed is .*same model"):
            gradsieve.torch.Averager(torch.nn.Linear(2, 2), gradsieve.Job("x", 0, 1), second_moments=moments)

    def test_a_codec_beside_a_job_is_refused(self):
        with self.assertRaisesRegex(gradsieve.InvalidArgument, "beside a Job"):
            gradsieve.torch.Averager(torch.nn.Linear(2, 2), gradsieve.Job("x", 0, 1), codec="all | f32")


if __name__ == "__main__":
    unittest.main()
