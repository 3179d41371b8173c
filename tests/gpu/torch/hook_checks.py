"""The communication hook with gradients on the device: averages to the bit, training, loss scalers, streams."""
import contextlib

import torch
from torch import nn

from check_ranks import EXACT, TOPK, expect, has_gloo_for
from torch_net import seeded_net


class Gradients:
    """Notes each parameter's gradient as a pass hands it in, and which buckets there were."""

    def __init__(self, model_of):
        self.model_of, self.own, self.buckets, self.passes = model_of, {}, [], []

    def __call__(self, bucket):
        names = {parameter: name for name, parameter in self.model_of.named_parameters()}
        for parameter, gradient in zip(bucket.parameters(), bucket.gradients()):
            self.own[names[parameter]] = gradient.clone()
        self.buckets.append([names[parameter] for parameter in bucket.parameters()])
        if bucket.is_last():
            self.passes.append(self.buckets)
            self.buckets = []


def expect_means(context, net, watched, weights=(1.0, 1.0)):
    """Every gradient is the mean of the ranks', in float32 and rounded once."""
    names = [name for name, parameter in net.named_parameters() if parameter.grad is not None]
    zero, one = context.gather([watched.own[name] for name in names])
    for name, a, b in zip(names, zero, one):
        found = dict(net.named_parameters())[name].grad.detach().cpu()
        wanted = ((a.float() * weights[0] + b.float() * weights[1]) * 0.5).to(found.dtype)
        expect(torch.equal(found, wanted), f"{name}: {int((found != wanted).sum())} of {found.numel()} elements differ, by up to "
                                           f"{float((found.float() - wanted.float()).abs().max())}")


def loss_of(context, model, rank, step, dtype=torch.float32):
    inputs, labels = context.batch(rank, step)
    return nn.functional.cross_entropy(model(inputs.to(dtype)).float(), labels)


def exact(context, dtype=torch.float32, on_side_stream=False, weights=(1.0, 1.0), **options):
    net = seeded_net().to(context.device, dtype)
    watched = Gradients(net)
    model, state = context.wrap(net, watch=watched, weight=weights[context.rank], bucket_cap_mb=0.005, **options)
    side = torch.cuda.stream(torch.cuda.Stream()) if on_side_stream else contextlib.nullcontext()
    with side:
        for step in range(1, 5):
            model.zero_grad(set_to_none=step % 2 == 0)
            loss_of(context, model, context.rank, step, dtype).backward()
            expect_means(context, net, watched, weights)
    expect(watched.passes[0] != watched.passes[1], f"buckets were not rebuilt: {watched.passes[:2]}")
    places = {tensor["place"] for tensor in context.entry(state.job, 4)["tensors"]}
    if context.device.type == "cuda":
        expect(not places & {"host", "staged", "unbound"}, f"places {places}")
    return f"4 steps, {len(watched.passes[1])} buckets, rebuilt; bits of the mean; place {places.pop()}"


def unused(context):
    """`spare` is used by rank 0 alone, then by nobody."""
    net = seeded_net().to(context.device)
    watched = Gradients(net)
    model, _ = context.wrap(net, watch=watched, find_unused_parameters=True)
    for step in range(1, 4):
        net.uses_spare = step == 2 and context.rank == 0
        model.zero_grad()
        loss_of(context, model, context.rank, step).backward()
        if step == 2:
            expect_means(context, net, watched)
    expect(net.spare.weight.grad is None or not net.spare.weight.grad.any(), "a layer that nobody used has a gradient")
    return "zeros where a rank does not use a layer; none where nobody does"


def train(context, codec, dtype=torch.float32, **options):
    torch.manual_seed(3)
    net = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)).to(context.device, dtype)
    optimizer = torch.optim.SGD(net.parameters(), 0.05, momentum=0.9)
    model, state = context.wrap(net, codec=codec, bucket_cap_mb=0.5, optimizer=optimizer, **options)

    def loss(rank, step):
        inputs, labels = context.batch(rank, step, 64, 256)
        return nn.functional.cross_entropy(model(inputs.to(dtype)).float(), labels)

    steps = 60
    before = float(loss(0, 10_000))
    for step in range(1, steps + 1):
        optimizer.zero_grad()
        loss(context.rank, step).backward()
        optimizer.step()
    after = float(loss(0, 10_000))
    hashed = context.expect_equal_ranks(net)
    ratio = context.entry(state.job, steps)["wire_ratio"]
    expect(after < 0.7 * before, f"loss {before:.3f} before, {after:.3f} after")
    return f"loss {before:.3f} to {after:.3f} in {steps} steps, wire ratio {ratio:.1f}, parameters {hashed} on all ranks"


def scaler(context):
    """Rank 1's gradients overflow in step 2: all ranks skip it and halve their scale."""
    net = seeded_net().to(context.device)
    scale = torch.amp.GradScaler(context.device.type, init_scale=1024.0, growth_interval=1000)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    model, _ = context.wrap(net, optimizer=optimizer, grad_scaler=scale)
    scales, hashes = [], []
    for step in range(1, 5):
        optimizer.zero_grad()
        with torch.autocast(context.device.type, dtype=torch.float16 if context.device.type == "cuda" else torch.bfloat16):
            inputs, labels = context.batch(context.rank, step)
            loss = nn.functional.cross_entropy(model(inputs).float(), labels)
        if step == 2 and context.rank == 1:
            loss = loss * float("inf")
        scale.scale(loss).backward()
        scale.step(optimizer)
        scale.update()
        scales.append(scale.get_scale())
        hashes.append(context.expect_equal_ranks(net))
    expect(scales == [1024.0, 512.0, 512.0, 512.0], f"scales {scales}")
    expect(hashes[0] == hashes[1] and len(set(hashes)) == 3, f"parameters {hashes}")
    return "an infinity on one rank: all skip the step, scale 1024 to 512, and go on equal"


def probed(context):
    net = seeded_net().to(context.device)
    model, state = context.wrap(net, codec=EXACT, probe_every=2)
    for step in range(1, 4):
        model.zero_grad()
        loss_of(context, model, context.rank, step).backward()
    context.entry(state.job, 3)
    worst = max(probe.relative_error for probe in state.probes.values() if probe.relative_error is not None)
    expect(len(state.probes) == len(list(net.parameters())) and worst < 1e-6, f"{len(state.probes)} probes, error {worst}")
    return f"torch's own all-reduce agrees to {worst:.1e}"


def plain(context):
    """Without a daemon: torch's own all-reduce, from the start."""
    net = seeded_net().to(context.device)
    watched = Gradients(net)
    model, state = context.wrap(net, watch=watched, fallback="allreduce", socket_path="/nowhere/gradsieved.sock")
    for step in (1, 2):
        model.zero_grad()
        loss_of(context, model, context.rank, step).backward()
        zero, one = context.gather([watched.own["layers.0.weight"]])
        difference = float((net.layers[0].weight.grad.cpu() - (zero[0] + one[0]) / 2).abs().max())
        expect(difference < 1e-6, f"differs by {difference}")
    expect(state.fallback_steps == 2, f"{state.fallback_steps} plain steps")
    return "2 steps by all-reduce"


def checks(context):
    is_card = context.device.type == "cuda"
    found = {"fp32": lambda: exact(context), "bf16": lambda: exact(context, torch.bfloat16)}
    if is_card:
        found["fp16"] = lambda: exact(context, torch.float16)
        found["fp32 on a side stream"] = lambda: exact(context, on_side_stream=True)
    found |= {"bf16, weights": lambda: exact(context, torch.bfloat16, weights=(0.6, 1.4)),
              "a layer some do not use": lambda: unused(context),
              "train topk": lambda: train(context, TOPK),
              "train topk, bf16": lambda: train(context, TOPK, torch.bfloat16),
              "probed steps": lambda: probed(context), "fallback": lambda: plain(context)}
    if not has_gloo_for(torch.bfloat16, context.device):
        for name in [name for name in found if "bf16" in name]:
            found[name] = "this torch's Gloo sends no bfloat16, as DDP does at its start"
    if hasattr(torch, "amp") and hasattr(torch.amp, "GradScaler"):
        found["loss scaler"] = lambda: scaler(context)
    return found
