"""Micro-batches and second moments of gradients on the device: slices, what the daemon tells of them, and squares against gradients of
single samples."""
import statistics
import time

import torch
from torch import nn

import gradsieve
import gradsieve.torch
from check_ranks import TIMEOUT_S, VARIANCE, expect, has_gloo_for
from hook_checks import loss_of
from torch_batches_ranks import Watched
from torch_net import seeded_net

ALPHA = 2.0
PASSES = 4


def micro_batches(context, dtype=torch.float32):
    """`spare` is used in the second and the last pass only."""
    net, alone = (seeded_net().to(context.device, dtype) for _ in range(2))
    model, state = context.wrap(net, codec=f"variance(alpha={ALPHA}, zeta=1) | f32", micro_batches=PASSES, find_unused_parameters=True)
    worst = 0.0
    for step in range(1, 4):
        own = {name: [] for name, _ in net.named_parameters()}
        for index in range(PASSES):  # what each pass makes, by a model of its own
            alone.uses_spare = index in (1, PASSES - 1)
            alone.zero_grad(set_to_none=True)
            loss_of(context, alone, context.rank, 10 * step + index, dtype).backward()
            for name, parameter in alone.named_parameters():
                own[name].append(torch.zeros_like(parameter).float() if parameter.grad is None else parameter.grad.float())
        model.zero_grad()
        with Watched() as watched:
            for index in range(PASSES):
                net.uses_spare = index in (1, PASSES - 1)
                if index + 1 < PASSES:
                    with model.no_sync():
                        loss_of(context, model, context.rank, 10 * step + index, dtype).backward()
                else:
                    loss_of(context, model, context.rank, 10 * step + index, dtype).backward()
        for name, passes in own.items():
            expect(len(watched.slices[name]) == PASSES, f"{name} has {len(watched.slices[name])} slices")
            for found, wanted in zip(watched.slices[name], passes):
                expect(found.device.type == context.device.type, f"{name} was handed in from {found.device}")
                worst = max(worst, float((found - PASSES * wanted).abs().max() / (wanted.abs().max() * PASSES + 1e-12)))
    expect(worst < (1e-5 if dtype == torch.float32 else 1e-2), f"slices differ by {worst}")
    told = {tensor["name"]: tensor["variance_source"] for tensor in context.entry(state.job, 3)["tensors"]}
    sources = {source for name, source in told.items() if name.endswith("weight")}  # tiny tensors go without the rule
    expect(sources == {"groups, pooled"}, f"sources {told}")
    return f"{PASSES} passes are {PASSES} slices, to {worst:.1e}; {sources.pop()}; gradients {context.expect_equal_ranks(_Grads(net))} on all ranks"


class _Grads:
    def __init__(self, net):
        self.net = net

    def parameters(self):
        return [parameter.grad for parameter in self.net.parameters()]


def per_sample(net, inputs, loss):
    """{name: gradients, one for each sample} by torch.func."""
    from torch.func import functional_call, grad, vmap
    parameters = {name: parameter.detach() for name, parameter in net.named_parameters()}

    def of_one(parameters, one):
        return loss(functional_call(net, parameters, (one[None],)))

    return vmap(grad(of_one), in_dims=(None, 0))(parameters, inputs)


class Positions(nn.Module):
    def __init__(self, *layers):
        super().__init__()
        self.layers = nn.Sequential(*layers)

    def forward(self, indices):
        return self.layers(indices).sum(1)


def models(context):
    torch.manual_seed(7)
    return {"perceptron": (nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)), torch.randn(128, 784)),
            "convolutions": (nn.Sequential(nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(),
                                           nn.MaxPool2d(2), nn.Flatten(), nn.Linear(64 * 49, 128), nn.ReLU(), nn.Linear(128, 10)),
                             torch.randn(32, 1, 28, 28)),
            "embedding": (Positions(nn.Embedding(5000, 128, padding_idx=3), nn.Linear(128, 512), nn.Tanh(), nn.Linear(512, 128)),
                          torch.randint(5000, (32, 32))),
            "wide perceptron": (nn.Sequential(nn.Linear(2048, 4096), nn.ReLU(), nn.Linear(4096, 4096), nn.ReLU(), nn.Linear(4096, 1000)),
                                torch.randn(256, 2048))}


def squares(context):
    """Against torch.func, sample by sample."""
    found = []
    for name, (net, inputs) in list(models(context).items())[:3]:
        net, inputs = net.to(context.device), inputs.to(context.device)
        wanted = per_sample(net, inputs, lambda outputs: outputs.tanh().square().mean())
        moments = gradsieve.torch.SecondMoments(net)
        net(inputs).tanh().square().mean().backward()
        worst = 0.0
        for key, parameter in net.named_parameters():
            seen, samples = moments.take(parameter)
            expect(samples == len(inputs) and seen.device == parameter.device, f"{key}: {samples} samples on {seen.device}")
            sums = (wanted[key] / len(inputs)).square().sum(0)
            worst = max(worst, float((seen - sums).abs().max() / sums.max()))
        moments.close()
        expect(worst < 1e-4, f"{name} differs by {worst}")
        found.append(f"{name} {worst:.0e}")
    return "against torch.func: " + ", ".join(found)


def small_net():
    torch.manual_seed(7)
    return nn.Sequential(nn.Linear(8, 24), nn.LayerNorm(24), nn.Tanh(), nn.Linear(24, 3))


def rule(context, weight=1.0):
    """What the daemon sends in a first step under a variance codec is what the rule sends with gradients of single samples."""
    net = small_net().to(context.device)
    inputs, labels = context.batch(context.rank, 1, 32)
    moments = gradsieve.torch.SecondMoments(net)
    job = gradsieve.Job(f"{context.job}-{context.rank}", 0, 1, codec=f"variance(alpha={ALPHA}, zeta=1) | f32")
    averaging = gradsieve.torch.Averager(net, job, second_moments=moments, timeout=TIMEOUT_S)
    job.start(TIMEOUT_S)
    nn.functional.cross_entropy(net(inputs), labels).backward()
    averaging.average_gradients(weight)
    told = {tensor["name"]: tensor["variance_source"] for tensor in context.entry(job, 1)["tensors"]}
    averaging.close(5.0)
    job.detach(5.0)
    parts = {name: [] for name, _ in net.named_parameters()}
    for row in range(len(inputs)):
        one = torch.autograd.grad(nn.functional.cross_entropy(net(inputs[row:row + 1]), labels[row:row + 1]), list(net.parameters()))
        for name, gradient in zip(parts, one):
            parts[name].append(weight * gradient / len(inputs))
    sent = wrong = 0
    for name, parameter in net.named_parameters():
        if parameter not in moments:
            expect(told[name] == "single gradient", f"{name}: {told[name]}")
            continue
        expect(told[name] == "second moment", f"{name}: {told[name]}")
        mean, sums = sum(parts[name]), sum(part ** 2 for part in parts[name])
        is_clear = (mean ** 2 - ALPHA * sums).abs() > 1e-4 * sums
        went = parameter.grad != 0
        sent += int(went.sum())
        wrong += int(((went != (mean ** 2 > ALPHA * sums)) & is_clear).sum())
    expect(sent > 0 and wrong == 0, f"{sent} sent, {wrong} of them against the rule")
    return f"{sent} elements sent, as the rule with gradients of single samples says; second moment"


def both(context):
    """DDP with micro-batches and second moments."""
    net = small_net().to(context.device)
    model, state = context.wrap(net, codec=VARIANCE, second_moments=gradsieve.torch.SecondMoments(net), micro_batches=2)
    for step in (1, 2, 3):
        model.zero_grad()
        with model.no_sync():
            loss_of(context, model, context.rank, 10 * step).backward()
        loss_of(context, model, context.rank, 10 * step + 1).backward()
    told = {tensor["name"]: tensor["variance_source"] for tensor in context.entry(state.job, 3)["tensors"]}
    expect(told["0.weight"] == "second moment" and told["1.weight"] == "groups, pooled", f"{told}")
    return f"covered layers: second moment, LayerNorm: groups, pooled; gradients {context.expect_equal_ranks(_Grads(net))} on all ranks"


def milliseconds(context, net, inputs):
    times = []
    for _ in range(6 if context.is_few else 25):
        net.zero_grad()
        if context.device.type == "cuda":
            torch.cuda.synchronize()
        began = time.perf_counter()
        net(inputs).square().mean().backward()
        if context.device.type == "cuda":
            torch.cuda.synchronize()
        times.append(1000 * (time.perf_counter() - began))
    return statistics.median(times[len(times) // 5:])


def overhead(context):
    """Of a forward and a backward pass; both ranks measure at a time, on one GPU."""
    found = []
    for name, (net, inputs) in list(models(context).items())[:1 if context.is_few else None]:
        net, inputs = net.to(context.device), inputs.to(context.device)
        without = milliseconds(context, net, inputs)
        moments = gradsieve.torch.SecondMoments(net)
        found.append(f"{name} {without:.2f} ms, {milliseconds(context, net, inputs):.2f} with")
        moments.close()
    return "; ".join(found)


def checks(context):
    found = {"4 micro-batches": lambda: micro_batches(context)}
    if has_gloo_for(torch.bfloat16, context.device):
        found["4 micro-batches, bf16"] = lambda: micro_batches(context, torch.bfloat16)
    if context.device.type == "cuda":
        found["4 micro-batches, fp16"] = lambda: micro_batches(context, torch.float16)
    if hasattr(torch, "func"):
        found["second moments"] = lambda: squares(context)
    return found | {"the variance rule": lambda: rule(context), "the variance rule, weight 4": lambda: rule(context, 4.0),
                    "both with DDP": lambda: both(context), "cost of second moments": lambda: overhead(context)}
