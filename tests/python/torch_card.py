"""Tensors of torch in memory of the emulated card (tests/emulated_cuda), which gradsieve.torch takes for a GPU's: what it binds goes the
way of real device memory to a daemon that has that card, while torch itself computes on the CPU, at once. Needs GRADSIEVE_CUDA_DRIVER."""
import contextlib
import ctypes
import math
import os
import unittest.mock

import torch


class OnCard(torch.Tensor):
    """As far as gradsieve.torch looks at it."""

    is_cuda = True


class LegacyStream:
    """The only one: everything is done once it is enqueued."""

    cuda_stream = 0


_STREAM = LegacyStream()
_SIZES = {torch.float32: 4, torch.float16: 2, torch.bfloat16: 2}


def empty(shape, dtype=torch.float32):
    """Fresh memory of the card, which holds NaNs."""
    card = ctypes.CDLL(os.environ["GRADSIEVE_CUDA_DRIVER"])
    address = ctypes.c_void_p()
    size = math.prod(shape) * _SIZES[dtype]
    error = card.cudaMalloc(ctypes.byref(address), ctypes.c_size_t(size))
    assert error == 0, f"cudaMalloc of {size} bytes answered {error}"
    memory = (ctypes.c_char * size).from_address(address.value)
    return torch.frombuffer(memory, dtype=dtype).reshape(shape).as_subclass(OnCard)


def to_card(net):
    """Moves a model's parameters, and gives each a gradient of zeros there, dense as the parameter is."""
    for module in net.modules():
        for name, parameter in list(module.named_parameters(recurse=False)):
            values = parameter.detach()
            order = sorted(range(values.dim()), key=lambda place: -values.stride(place))
            back = sorted(range(values.dim()), key=lambda place: order[place])

            def room():
                return empty([values.shape[place] for place in order], values.dtype).permute(back)

            moved = torch.nn.Parameter(room().copy_(values))
            assert moved.stride() == parameter.stride()
            moved.grad = room().zero_()
            module._parameters[name] = moved
    return net


class ParameterOnCard(torch.nn.Parameter):
    """One that lies on the host and says otherwise: gradients of it are handed in from slabs on the card."""

    is_cuda = True


def count_as_on_card(net):
    """Parameters stay where and who they are."""
    for parameter in net.parameters():
        parameter.__class__ = ParameterOnCard


@contextlib.contextmanager
def card():
    """While it lasts, gradsieve.torch makes its own GPU memory on the card. With buckets of DDP, which are on the host here, it works
    as far as it binds memory of its own."""
    with unittest.mock.patch("torch.cuda.current_stream", lambda device=None: _STREAM), \
            unittest.mock.patch("gradsieve.torch.member.zeros_on", lambda device, shape, what: empty(shape).zero_()), \
            unittest.mock.patch("gradsieve.torch.member.Member.check_device", lambda member, gradient: None):
        yield
