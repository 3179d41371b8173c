"""A step of each of the compared ways, on one rank. `prepare` puts a recorded gradient where the way wants it and is not timed;
`step` is, from hand-in to hand-back; `result` is the average. In place: the gradient lies, and the average is read, where the way
itself works (a slab and the result area; DDP's bucket). Framework: both lie in the parameters' own `grad`, and copying is timed."""
import numpy
import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook

import gradsieve
import gradsieve.torch

from .catalog import COPY, FP16, GLOO, IN_PLACE, OURS, POWER_SGD

MIB = 1 << 20
# DistributedDataParallel's own; a bucket is closed once it holds that much.
FIRST_BUCKET_BYTES, BUCKET_BYTES = MIB, 25 * MIB
POWER_SGD_FROM = 2  # steps before its hook begins to compress; the least that it allows


class Framework:
    """The parameters of a network with their `grad`, shared by all ways."""

    def __init__(self, network):
        self.network = network
        self.parameters = list(network.parameters())
        for parameter in self.parameters:
            parameter.grad = torch.zeros_like(parameter)

    def pieces(self, flat):
        """A flat array in the parameters' order, cut up."""
        place = 0
        for parameter in self.parameters:
            yield flat[place:place + parameter.numel()]
            place += parameter.numel()

    def write(self, gradient):
        for parameter, piece in zip(self.parameters, self.pieces(gradient)):
            parameter.grad.view(-1).copy_(torch.from_numpy(piece))

    def read(self):
        return numpy.concatenate([parameter.grad.numpy().reshape(-1) for parameter in self.parameters])


class Bucket:
    """What DDP's hooks ask of a `GradBucket`, which torch 1.13 does not let Python make."""

    def __init__(self, index, is_last, parameters):
        self._index, self._is_last, self._parameters = index, is_last, parameters
        self._buffer = torch.zeros(sum(parameter.numel() for parameter in parameters))
        self._views, place = [], 0
        for parameter in parameters:
            self._views.append(self._buffer[place:place + parameter.numel()].view_as(parameter))
            place += parameter.numel()

    def index(self):
        return self._index

    def is_last(self):
        return self._is_last

    def buffer(self):
        return self._buffer

    def set_buffer(self, buffer):
        self._buffer.copy_(buffer)

    def gradients(self):
        return self._views

    def parameters(self):
        return self._parameters


def bucket_runs(sizes, first_bytes=FIRST_BUCKET_BYTES, bytes_=BUCKET_BYTES):
    """Which tensors share a bucket, as DDP deals them: from the last one on; a list of lists of places in `sizes` (elements)."""
    runs, run, run_bytes = [], [], 0
    for place in reversed(range(len(sizes))):
        run.append(place)
        run_bytes += 4 * sizes[place]
        if run_bytes >= (bytes_ if runs else first_bytes):
            runs.append(run)
            run, run_bytes = [], 0
    return runs + [run] if run else runs


class Hook:
    """One of DDP's communication hooks over Gloo. A DDP whose `gradient_as_bucket_view` is off, its default, copies every gradient
    into its bucket and the average back: that is what `framework` times."""

    def __init__(self, framework, state, hook, runs):
        self._framework, self._state, self._hook = framework, state, hook
        self._buckets = [Bucket(index, index == len(runs) - 1, [framework.parameters[place] for place in run])
                         for index, run in enumerate(runs)]
        self._views = {id(parameter): view for bucket in self._buckets for parameter, view in zip(bucket.parameters(), bucket.gradients())}

    def prepare(self, mode, gradient):
        if mode != IN_PLACE:
            self._framework.write(gradient)
            return
        for parameter, piece in zip(self._framework.parameters, self._framework.pieces(gradient)):
            self._views[id(parameter)].view(-1).copy_(torch.from_numpy(piece))

    @torch.no_grad()
    def step(self, mode):
        futures = []
        for bucket in self._buckets:
            if mode != IN_PLACE:
                for parameter, view in zip(bucket.parameters(), bucket.gradients()):
                    view.copy_(parameter.grad)
            futures.append(self._hook(self._state, bucket))
        for bucket, future in zip(self._buckets, futures):
            averaged = future.wait()
            averaged = averaged[0] if isinstance(averaged, (list, tuple)) else averaged
            if averaged.data_ptr() != bucket.buffer().data_ptr():
                bucket.set_buffer(averaged)
            if mode != IN_PLACE:
                for parameter, view in zip(bucket.parameters(), bucket.gradients()):
                    parameter.grad.copy_(view)

    def result(self, mode):
        if mode != IN_PLACE:
            return self._framework.read()
        return numpy.concatenate([self._views[id(parameter)].numpy().reshape(-1) for parameter in self._framework.parameters])

    def close(self):
        pass


class _TensorsJob(gradsieve.Job):
    """A Job that remembers its tensors."""

    def add_tensor(self, *arguments, **options):
        self.__dict__.setdefault("tensors", []).append(super().add_tensor(*arguments, **options))
        return self.tensors[-1]


class Gradsieve:
    """A job through the daemon of this rank's node. `framework` is gradsieve.torch.Averager as it is."""

    def __init__(self, framework, method, rank, world, socket_path, timeout_s):
        self._framework, self._timeout_s = framework, timeout_s
        self._job = _TensorsJob(method.name.replace(" ", "-"), rank, world, run_id="slow-link", codec=method.codec,
                                socket_path=socket_path)
        self._averager = gradsieve.torch.Averager(framework.network, self._job, timeout=timeout_s)
        self._job.start(timeout_s)
        self._averages = []

    def prepare(self, mode, gradient):
        if mode != IN_PLACE:
            self._framework.write(gradient)
            return
        for tensor, piece in zip(self._job.tensors, self._framework.pieces(gradient)):
            tensor.gradient.reshape(-1)[...] = piece

    def step(self, mode):
        if mode != IN_PLACE:
            self._averager.average_gradients()
            return
        number = self._averager.last_step + 1 if self._averager.last_step else self._job.first_step()
        for tensor in self._job.tensors:
            tensor.submit(number)
        self._averages = [tensor.wait(self._timeout_s) for tensor in self._job.tensors]
        self._averager.last_step = number

    def result(self, mode):
        if mode != IN_PLACE:
            return self._framework.read()
        return numpy.concatenate([average.reshape(-1) for average in self._averages])

    def close(self):
        self._averager.close()
        self._job.detach(self._timeout_s)


class Copy:
    """One copy of the gradient, on both ranks at once: what the machine's memory allows."""

    def __init__(self, elements):
        self._from, self._to = numpy.ones(elements, numpy.float32), numpy.zeros(elements, numpy.float32)

    def prepare(self, mode, gradient):
        pass

    def step(self, mode):
        numpy.copyto(self._to, self._from)

    def result(self, mode):
        return self._to

    def close(self):
        pass


def make_method(method, framework, rank, world, sockets, timeout_s):
    """Called for the same methods in the same order on all ranks."""
    if method.kind == OURS:
        return Gradsieve(framework, method, rank, world, sockets[method.security], timeout_s)
    sizes = [parameter.numel() for parameter in framework.parameters]
    if method == COPY:
        return Copy(sum(sizes))
    if method == GLOO:
        return Hook(framework, None, default_hooks.allreduce_hook, bucket_runs(sizes))
    if method == FP16:
        return Hook(framework, None, default_hooks.fp16_compress_hook, bucket_runs(sizes))
    # One bucket: its hook starts all-reduces from callbacks, whose order over Gloo would not be that of the other rank.
    one_bucket = bucket_runs(sizes, 4 * sum(sizes), 4 * sum(sizes))
    power = next(power for power, known in POWER_SGD.items() if known == method)
    state = powerSGD_hook.PowerSGDState(dist.group.WORLD, matrix_approximation_rank=power, start_powerSGD_iter=POWER_SGD_FROM)
    return Hook(framework, state, powerSGD_hook.powerSGD_hook, one_bucket)
