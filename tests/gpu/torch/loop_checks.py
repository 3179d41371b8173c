"""Averager, for loops without DistributedDataParallel, with gradients on the device."""
import torch
from torch import nn

import gradsieve.torch
from check_ranks import EXACT, TIMEOUT_S, VARIANCE, expect
from hook_checks import loss_of
from torch_net import seeded_net


def averager(context, net, codec=EXACT, **options):
    averaging = gradsieve.torch.Averager(net, context.job, codec=codec, timeout=TIMEOUT_S, start_timeout=TIMEOUT_S, **options)
    context.states.append(averaging)
    return averaging


def exact(context, dtype=torch.float32, keeps=False):
    """keeps: gradients stay where they are between steps."""
    net = seeded_net().to(context.device, dtype)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(0.5 * context.rank)
    averaging = averager(context, net)
    averaging.broadcast_parameters(root=1)
    hashed = context.expect_equal_ranks(net)
    for step in range(1, 4):
        net.zero_grad(set_to_none=not keeps)
        loss_of(context, net, context.rank, step, dtype).backward()
        zero, one = context.gather([parameter.grad for parameter in net.parameters()])
        averaging.average_gradients()
        for a, b, parameter in zip(zero, one, net.parameters()):
            wanted = ((a.float() + b.float()) * 0.5).to(dtype)
            expect(torch.equal(parameter.grad.cpu(), wanted), f"step {step} differs")
    return f"broadcast {hashed} on all ranks, 3 steps with the bits of the mean"


def channels_last(context):
    """Elements go in the order of indices; rank 1's memory is in another one."""
    torch.manual_seed(4)
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 4, 3)).to(context.device)
    if context.rank == 1:
        net = net.to(memory_format=torch.channels_last)
    averaging = averager(context, net)
    for step in (1, 2):
        net.zero_grad()
        generator = torch.Generator().manual_seed(10 * step + context.rank)
        inputs = torch.randn(4, 3, 8, 8, generator=generator).to(context.device)
        net(inputs.contiguous(memory_format=torch.channels_last) if context.rank == 1 else inputs).square().mean().backward()
        zero, one = context.gather([parameter.grad for parameter in net.parameters()])
        averaging.average_gradients()
        for a, b, parameter in zip(zero, one, net.parameters()):
            expect(torch.equal(parameter.grad.cpu(), (a + b) * 0.5), f"step {step} differs")
    return f"rank 0 contiguous, rank 1 channels_last: bits of the mean; gradients of rank 0 {net[0].weight.grad.stride()}"


def micro_batches(context):
    """As many passes as it likes, up to 3; rank 1 has one fewer in each step."""
    net = seeded_net().to(context.device)
    averaging = averager(context, net, EXACT, micro_batches=3)
    for step in range(1, 4):
        net.zero_grad()
        for index in range(3 - context.rank):
            loss_of(context, net, context.rank, 10 * step + index).backward()
        zero, one = context.gather([parameter.grad for parameter in net.parameters()])
        averaging.average_gradients()
        for a, b, parameter in zip(zero, one, net.parameters()):
            difference = float((parameter.grad.cpu() - (a + b) * 0.5).abs().max())
            expect(difference < 1e-5, f"step {step} differs by {difference}")
    return "3 and 2 passes: the mean of the sums"


def checkpoint(context):
    """Goes back to a step: the bits of the run that went on."""
    net = seeded_net().to(context.device)
    moments = gradsieve.torch.SecondMoments(net)
    averaging = averager(context, net, VARIANCE, second_moments=moments)
    hashes = []

    def step_on(averaging, step):
        net.zero_grad()
        loss_of(context, net, context.rank, step).backward()
        averaging.average_gradients()
        hashes.append([parameter.grad.cpu().clone() for parameter in net.parameters()])

    for step in (1, 2, 3):
        step_on(averaging, step)
        if step == 2:
            saved = averaging.state_dict()
    averaging.close(5.0)
    context.states.clear()
    resumed = averager(context, net, VARIANCE, second_moments=moments, resume=saved)
    step_on(resumed, 3)
    worst = max(float((a - b).abs().max()) for a, b in zip(hashes[2], hashes[3]))
    expect(worst < 1e-6, f"differs by {worst}")
    return f"step 3 again, behind a checkpoint of step 2: differs by {worst:.1e} (sums on the card may)"


def checks(context):
    return {"Averager, fp32": lambda: exact(context), "Averager, bf16, gradients stay": lambda: exact(context, torch.bfloat16, keeps=True),
            "channels_last": lambda: channels_last(context), "Averager, micro-batches": lambda: micro_batches(context),
            "checkpoint": lambda: checkpoint(context)}
