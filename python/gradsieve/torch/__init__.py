"""gradsieve for PyTorch: gradients of DistributedDataParallel, or of a loop without it, averaged by the daemon.

    model = DistributedDataParallel(model)
    gradsieve.torch.register(model, job="resnet", codec="topk(0.01) | pow2(bits=4) | auto")
    # train as ever: loss.backward() averages, in the background of the backward pass

or, as other communication hooks are registered:

    state = gradsieve.torch.State(model, job="resnet")
    model.register_comm_hook(state, gradsieve.torch.hook)

What the daemon keeps belongs to parameter names, so that buckets may be rebuilt. No private name of torch is used; tested
with PyTorch 1.13 on CPUs and 2.11 with CUDA. docs/python.md says what a training loop may do.
"""
from __future__ import annotations

from .averager import Averager
from .ddp import State, hook, register
from .second_moments import SecondMoments

__all__ = ["Averager", "SecondMoments", "State", "hook", "register"]
