"""What gradsieve's hook costs a step beside DDP's noop hook, which averages nothing, on the same model. The hooks take turns, so that
whatever else the machine does meets all of them; on a busy machine there are fewer turns."""
import statistics
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import debugging_hooks
from torch.nn.parallel import DistributedDataParallel

import gradsieve.torch
from check_ranks import TIMEOUT_S, TOPK, VARIANCE, expect

WARM_UP_TURNS = 8
TURNS, FEW_TURNS = 40, 4  # FEW_TURNS at least, whatever they take
TURNS_S = 6.0  # after this long there is no further one
HOOKS = {"noop": {}, "topk": {"codec": TOPK}, "variance": {"codec": VARIANCE}, "variance, second moments": {"codec": VARIANCE, "has_moments": True}}
PASSES = 4


def layers(count, width):
    torch.manual_seed(2)
    return nn.Sequential(*(layer for _ in range(count) for layer in (nn.Linear(width, width), nn.ReLU())))


def stepper(context, net, name, passes, codec=None, has_moments=False):
    """A model with its hook: a function that takes a step and says how long it took, and how long the hook's calls took."""
    in_hook = [0.0]
    moments = gradsieve.torch.SecondMoments(net) if has_moments else None
    model = DistributedDataParallel(net)
    if codec is None:
        model.register_comm_hook(None, debugging_hooks.noop_hook)
    else:
        state = gradsieve.torch.State(model, f"{context.job}-{name}".replace(" ", "-").replace(",", ""), codec=codec, timeout=TIMEOUT_S, start_timeout=TIMEOUT_S,
                                      micro_batches=passes, second_moments=moments)
        context.states.append(state)

        def hook(state, bucket):
            began = time.perf_counter()
            future = gradsieve.torch.hook(state, bucket)
            in_hook[0] += time.perf_counter() - began
            return future

        model.register_comm_hook(state, hook)
    width = net[0].in_features
    inputs = torch.randn(64, width, device=context.device)

    def step():
        model.zero_grad()
        synchronize(context)
        dist.barrier()
        in_hook[0] = 0.0
        began = time.perf_counter()
        for index in range(passes):
            if index + 1 < passes:
                with model.no_sync():
                    model(inputs).square().mean().backward()
            else:
                model(inputs).square().mean().backward()
        synchronize(context)
        return 1000 * (time.perf_counter() - began), 1000 * in_hook[0]

    return step


def synchronize(context):
    if context.device.type == "cuda":
        torch.cuda.synchronize()


def has_time(context, deadline):
    """The same answer on every rank: rank 0's."""
    flag = torch.tensor([float(time.monotonic() < deadline)])
    dist.broadcast(flag, 0)
    return bool(flag.item())


def cost(context, count, width, passes=1):
    hooks = {name: options for name, options in HOOKS.items() if passes == 1 or "has_moments" not in options}
    steppers = {name: stepper(context, layers(count, width).to(context.device), name, passes, **options) for name, options in hooks.items()}
    times = {name: [] for name in steppers}
    for _ in range(WARM_UP_TURNS):
        for step in steppers.values():
            step()
    deadline = time.monotonic() + TURNS_S
    for turn in range(FEW_TURNS if context.is_few else TURNS):
        if turn >= FEW_TURNS and not has_time(context, deadline):
            break
        for name, step in steppers.items():
            times[name].append(step())
    texts, base = [], statistics.median(elapsed for elapsed, _ in times["noop"])
    for name, found in times.items():
        low, middle, high = statistics.quantiles([elapsed for elapsed, _ in found], n=4)
        inside = statistics.median(inside for _, inside in found)
        beyond = "" if name == "noop" else f" ({middle - base:+.2f}, {inside:.2f} in the hook)"
        texts.append(f"{name} {middle:.2f} [{low:.2f} .. {high:.2f}]{beyond}")
    expect(base > 0, "no time")
    elements = sum(parameter.numel() for parameter in layers(count, width).parameters())
    return f"{elements / 1e6:.1f} M elements in {2 * count} tensors, {passes} passes, {len(times['noop'])} steps; ms a step: " + "; ".join(texts)


def checks(context):
    if context.is_few:
        return {"few tensors": lambda: cost(context, 3, 128), "with micro-batches": lambda: cost(context, 2, 128, PASSES)}
    return {"few tensors": lambda: cost(context, 6, 2048), "many tensors": lambda: cost(context, 80, 256),
            "with micro-batches": lambda: cost(context, 6, 2048, PASSES)}
