"""Training processes for torch_card_test.py: one model whose gradients are handed in through host memory, or on the emulated card. The
arithmetic is the CPU's in both, so that averages have to be the same bits. Run by rank_main.py."""
import contextlib
import os

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import gradsieve
import gradsieve.torch
import torch_card
import torch_ranks
from torch_batches_ranks import sources
from torch_net import hash_of, join_processes
from torch_ranks import TIMEOUT_S

STEPS, PASSES = 4, 3
VARIANCE = "variance(1.5) | pow2(bits=4) | auto"


def made_net(memory_format=torch.contiguous_format, dtype=torch.float32):
    """A convolution and two linear layers, whose second moments are covered, and one of which they are not."""
    torch.manual_seed(11)
    return nn.Sequential(nn.Conv2d(3, 5, 3), nn.Tanh(), nn.Flatten(), nn.Linear(180, 16), nn.LayerNorm(16), nn.Tanh(), nn.Linear(16, 4)).to(
        dtype=dtype, memory_format=memory_format)


def loss_of(model, rank, number, dtype=torch.float32):
    generator = torch.Generator().manual_seed(1000 * rank + number)
    return model(torch.randn(6, 3, 8, 8, generator=generator).to(dtype)).float().square().mean()


def place_of(places):
    """Of this rank: what its parameters lie in, and what lasts as long as it trains there."""
    rank = join_processes()
    is_on_card = places[rank] == "card"
    return rank, torch_card.to_card if is_on_card else lambda net: net, torch_card.card() if is_on_card else contextlib.nullcontext()


def summary(job, last_step, hashes):
    told = sources(job, last_step)
    places = {place if place in ("host", "staged", "unbound") else "gpu" for place in (entry["place"] for entry in job.status()["tensors"])}
    return {"hashes": hashes, "sources": told, "places": sorted(places)}


def averaged(places, passes=1, has_moments=False, weight=1.0, dtype="float32", channels_last=False, codec=VARIANCE):
    """Averager. Hashes of each step's averages."""
    rank, move, memory = place_of(places)
    dtype = getattr(torch, dtype)
    net = move(made_net(torch.channels_last if channels_last else torch.contiguous_format, dtype))
    hashes = []
    with memory:
        moments = gradsieve.torch.SecondMoments(net) if has_moments else None
        averaging = gradsieve.torch.Averager(net, torch_ranks.job_name, codec=codec, micro_batches=passes, second_moments=moments,
                                             timeout=TIMEOUT_S, start_timeout=TIMEOUT_S)
        averaging.broadcast_parameters(root=1)
        hashes.append(hash_of(net.parameters()))
        for step in range(1, STEPS + 1):
            net.zero_grad(set_to_none=False)
            for index in range(passes - (step + rank) % passes):  # not as many in every step, or on every rank
                loss_of(net, rank, 10 * step + index, dtype).backward()
            averaging.average_gradients(weight)
            hashes.append(hash_of(parameter.grad for parameter in net.parameters()))
        found = summary(averaging.job, STEPS, hashes)
        averaging.close(TIMEOUT_S)
    return found


def hooked(places):
    """DistributedDataParallel with micro-batches. Its buckets are on the host; what is handed in is not."""
    rank, _, memory = place_of(places)
    net = made_net()
    model = DistributedDataParallel(net, bucket_cap_mb=0.001)
    hashes = []
    with memory:
        if places[rank] == "card":
            torch_card.count_as_on_card(net)  # DDP would take them for parameters that are no such
        state = gradsieve.torch.register(model, torch_ranks.job_name, codec=VARIANCE, micro_batches=PASSES, timeout=TIMEOUT_S,
                                         start_timeout=TIMEOUT_S)
        torch_ranks.states.append(state)
        for step in range(1, STEPS + 1):
            model.zero_grad()
            for index in range(PASSES):
                with model.no_sync() if index + 1 < PASSES else contextlib.nullcontext():
                    loss_of(model, rank, 10 * step + index).backward()
            hashes.append(hash_of(parameter.grad for parameter in net.parameters()))
        found = summary(state.job, STEPS, hashes)
    return found


def lost(places):
    """Rank 1 ends in the middle of a step, between two of its micro-batches: rank 0 is told who it was."""
    rank, move, memory = place_of(places)
    net = move(made_net())
    with memory:
        averaging = gradsieve.torch.Averager(net, torch_ranks.job_name, codec=VARIANCE, micro_batches=2, timeout=TIMEOUT_S)
        for index in range(2):
            loss_of(net, rank, index).backward()
        averaging.average_gradients()
        loss_of(net, rank, 2).backward()
        if rank == 1:
            print("result null", flush=True)
            os._exit(0)
        loss_of(net, rank, 3).backward()
        try:
            averaging.average_gradients()
            text = "no error was seen"
        except gradsieve.GradsieveError as error:
            text = str(error)
    return {"text": text}
