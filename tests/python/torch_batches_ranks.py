"""Training processes for torch_batches_test.py: batches of different sizes, micro-batches, second moments, probed steps. Run
by rank_main.py with torchrun's environment variables."""
import time
import unittest.mock
import warnings

import torch
from torch import nn

import gradsieve
import gradsieve.torch
import torch_ranks
from gradsieve.torch.member import Member
from torch_net import batch, exact_mean, gradients, join_processes, largest_difference, local_gradients, loss_of, seeded_net
from torch_ranks import EXACT, TIMEOUT_S, wrap

ALPHA = 2.0
ROWS = (8, 24)  # of each rank's batch
VARIANCE = f"variance(alpha={ALPHA}, zeta=1) | f32"


def averager_of(net, codec=EXACT, **options):
    return gradsieve.torch.Averager(net, torch_ranks.job_name, codec=codec, timeout=TIMEOUT_S, **options)


def loss_on(model, rank, step):
    """The mean over this rank's batch, whose size is its own."""
    inputs, labels = batch(rank, step, ROWS[rank])
    return nn.functional.cross_entropy(model(inputs), labels)


def mean_over_all_samples(step):
    net = seeded_net()
    parts = [batch(rank, step, ROWS[rank]) for rank in (0, 1)]
    inputs, labels = (torch.cat([part[index] for part in parts]) for index in (0, 1))
    nn.functional.cross_entropy(net(inputs), labels).backward()
    return gradients(net)


def weighted(fallback=None):
    """Each rank's gradient counts by its samples: the mean over all of them, by DDP, and by the plain path."""
    rank = join_processes()
    share = ROWS[rank] * 2 / sum(ROWS)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model, state = wrap(seeded_net(), weight=share, fallback=fallback, socket_path="/nowhere/gradsieved.sock" if fallback else None)
    differences = []
    for step in (1, 2):
        model.zero_grad()
        loss_on(model, rank, step).backward()
        differences.append(largest_difference(gradients(model), mean_over_all_samples(step)))
    text = ""
    try:
        state.weight = float("nan")
    except gradsieve.InvalidArgument as error:
        text = str(error)
    return {"differences": differences, "text": text, "plain_steps": state.fallback_steps}


def weighted_averager():
    rank = join_processes()
    net = seeded_net()
    averaging = averager_of(net)
    loss_on(net, rank, 1).backward()
    averaging.average_gradients(ROWS[rank] * 2 / sum(ROWS))
    averaging.job.detach(TIMEOUT_S)
    return largest_difference(gradients(net), mean_over_all_samples(1))


def joined(**options):
    """Rank 1 has finished. Rank 0 goes on alone, and its weight makes up for the divisor."""
    rank = join_processes()
    model, state = wrap(seeded_net(), **options)
    with model.join():
        for step in range(1, 4 - rank):
            model.zero_grad()
            state.weight = 2.0 if step == 3 else 1.0
            loss_of(model, rank, step).backward()
            last = gradients(model)
    return {"last_step": state.last_step, "difference": largest_difference(last, local_gradients(seeded_net(), 0, 3)) if rank == 0 else 0.0}


class Watched:
    """Notes what is in the slices of tensors as they are handed in: {name: [slices]}, of the newest step."""

    def __init__(self):
        self.slices = {}
        hand_in = Member.hand_in

        def noting(member, *arguments, slices=0, **named):
            self.slices[member.name] = [member.slice(index).clone() for index in range(slices)]
            hand_in(member, *arguments, slices=slices, **named)

        self.patch = unittest.mock.patch.object(Member, "hand_in", noting)

    def __enter__(self):
        self.patch.start()
        return self

    def __exit__(self, *_):
        self.patch.stop()


def micro_batches():
    """Rank 0 has three micro-batches in a step and rank 1 two; the average is of their sums, and each slice is one of them
    times their number. `spare` is used by one of them only, on rank 0 by another one in the second step."""
    rank = join_processes()
    counts = (3, 2)
    net = seeded_net()
    model, state = wrap(net, micro_batches=3, find_unused_parameters=True)
    reference = seeded_net()
    users = []  # the micro-batch of each rank that uses `spare`; rank 1's last one, or DDP itself would leave it unaveraged

    def own(of, index):
        reference.uses_spare = index == users[of]
        return local_gradients(reference, of, index)

    differences, slice_differences, numbers = [], [], set()
    for users in ((2, 2), (1, 2)):  # the second step begins anew
        model.zero_grad()
        with Watched() as watched:
            for index in range(1, counts[rank] + 1):
                net.uses_spare = index == users[rank]
                if index < counts[rank]:
                    with model.no_sync():
                        loss_of(model, rank, index).backward()
                else:
                    loss_of(model, rank, index).backward()
        sums = [[sum(parts) for parts in zip(*(own(of, index) for index in range(1, counts[of] + 1)))] for of in (0, 1)]
        differences.append(largest_difference(gradients(model), [(zero + one) * 0.5 for zero, one in zip(*sums)]))
        for place, (name, _) in enumerate(net.named_parameters()):
            if name.startswith("spare"):
                continue
            slices = watched.slices[name]
            numbers.add(len(slices))
            for index, found in enumerate(slices, 1):
                slice_differences.append(float((found - counts[rank] * own(rank, index)[place]).abs().max()))
    return {"difference": max(differences), "slice_difference": max(slice_differences), "counts": sorted(numbers), "last_step": state.last_step}


def two_models():
    """One job, two groups: one with micro-batches, second moments and probes, the other one plain, and stepping less often."""
    rank = join_processes()
    job = gradsieve.Job(torch_ranks.job_name, codec=EXACT)
    plain, plain_state = wrap(seeded_net(), job, None, prefix="g")
    net = small_net()
    model, state = wrap(net, job, None, prefix="d", micro_batches=2, probe_every=3, second_moments=gradsieve.torch.SecondMoments(net))
    job.start(TIMEOUT_S)
    loss_of(plain, rank, 1).backward()
    for step in range(1, 4):
        model.zero_grad()
        with model.no_sync():
            loss_of(model, rank, 10 * step).backward()
        loss_of(model, rank, 10 * step + 1).backward()
    reference = small_net()
    sums = [[a + b for a, b in zip(local_gradients(reference, of, 30), local_gradients(reference, of, 31))] for of in (0, 1)]
    difference = largest_difference(gradients(model), [(zero + one) * 0.5 for zero, one in zip(*sums)])
    job.detach(TIMEOUT_S)
    return {"steps": [plain_state.last_step, state.last_step], "difference": difference, "probes": sorted(state.probes),
            "plain_probes": len(plain_state.probes)}


def failed_start():
    """A model whose job did not start is as it was."""
    net = seeded_net()
    try:
        averager_of(net, micro_batches=2, socket_path="/nowhere/gradsieved.sock")
        text = "no error was seen"
    except gradsieve.Unavailable as error:
        text = str(error)
    loss_of(net, 0, 1).backward()
    return {"text": text}


def too_many_passes():
    net = seeded_net()
    averaging = averager_of(net, micro_batches=2)
    text = ""
    try:
        for index in (1, 2, 3):
            loss_of(net, 0, index).backward()
    except gradsieve.InvalidArgument as error:
        text = str(error)
    net.zero_grad()
    loss_of(net, 0, 4).backward()
    averaging.average_gradients()
    difference = largest_difference(gradients(net), local_gradients(seeded_net(), 0, 4))
    averaging.close(TIMEOUT_S)
    loss_of(net, 0, 5).backward()  # the job is left, and the model is its own again
    return {"text": text, "difference": difference}


def sources(job, step):
    """The daemon's words about each tensor's variance, once its status page tells of `step`."""
    deadline = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline:
        try:
            entry = job.status()
        except gradsieve.NotFound:
            continue
        if entry["groups"][0]["committed_step"] >= step:
            return {tensor["name"]: tensor["variance_source"] for tensor in entry["tensors"]}
    raise AssertionError("the status page does not tell of the step")


def small_net():
    torch.manual_seed(7)
    return nn.Sequential(nn.Linear(8, 24), nn.LayerNorm(24), nn.Tanh(), nn.Linear(24, 3))


def is_sent_by_rule(net, batches, weight):
    """Which elements the paper's rule sends in a first step, by one backward pass for each sample: the squared mean above
    alpha times the sum of the squares of each sample's part in it. None where it is too close to say."""
    parts = []
    for inputs, labels in batches:
        for row in range(len(inputs)):
            net.zero_grad()
            nn.functional.cross_entropy(net(inputs[row:row + 1]), labels[row:row + 1]).backward()
            parts.append([weight * parameter.grad / len(inputs) for parameter in net.parameters()])
    rules = []
    for of_parameter in zip(*parts):
        mean, squares = sum(of_parameter), sum(part ** 2 for part in of_parameter)
        rules.append((mean ** 2 > ALPHA * squares, (mean ** 2 - ALPHA * squares).abs() > 1e-4 * squares, mean))
    return rules


def second_moments(passes=1, weight=1.0):
    """What the daemon sends in the first step under a variance codec is what the rule sends with per-sample gradients."""
    net = small_net()
    moments = gradsieve.torch.SecondMoments(net)
    averaging = averager_of(net, VARIANCE, second_moments=moments, micro_batches=passes)
    batches = [batch(0, index, 16) for index in range(1, passes + 1)]
    for inputs, labels in batches:
        nn.functional.cross_entropy(net(inputs), labels).backward()
    averaging.average_gradients(weight)
    found = sources(averaging.job, 1)
    averaging.job.detach(TIMEOUT_S)
    sent, wrong, values_differ = 0, [], 0.0
    for (name, parameter), (rule, is_clear, mean) in zip(net.named_parameters(), is_sent_by_rule(small_net(), batches, weight)):
        if parameter not in moments:
            continue
        went = parameter.grad != 0
        sent += int(went.sum())
        wrong.append(int(((went != rule) & is_clear).sum()))
        values_differ = max(values_differ, float((parameter.grad - mean)[went].abs().max()) if went.any() else 0.0)
    return {"sources": found, "missing": moments.missing, "sent": sent, "of": sum(p.numel() for p in net.parameters() if p in moments),
            "wrong": sum(wrong), "values_differ": values_differ}


def second_moments_with_ddp():
    """Two ranks; LayerNorm's parameters are told by the ranks' micro-batches."""
    rank = join_processes()
    net = small_net()
    model, state = wrap(net, codec=VARIANCE, second_moments=gradsieve.torch.SecondMoments(net), micro_batches=2)
    for step in (1, 2):
        model.zero_grad()
        with model.no_sync():
            loss_of(model, rank, 10 * step).backward()
        loss_of(model, rank, 10 * step + 1).backward()
    return sources(state.job, 2)


def probed(codec, dtype="float32"):
    """Every second step is averaged exactly as well."""
    rank = join_processes()
    model, state = wrap(seeded_net(), codec=codec, probe_every=2)
    before = dict(state.probes)
    for step in (1, 2, 3):
        model.zero_grad()
        loss_of(model, rank, step).backward()
        if step == 2:
            averages = gradients(model)
    sources(state.job, 3)
    names = [name for name, _ in model.module.named_parameters()]
    told = {entry["name"]: entry["probe"] for entry in state.status()["tensors"]}
    differences = []
    for name, average, exact in zip(names, averages, exact_mean(seeded_net(), 2)):
        probe = state.probes[name]
        error = float((average - exact).double().norm() / exact.double().norm())
        cosine = float((average.double() * exact.double()).sum() / (average.double().norm() * exact.double().norm()))
        differences += [abs(probe.relative_error - error), abs(probe.cosine - cosine)]
    return {"before": len(before), "steps": sorted({probe.step for probe in state.probes.values()}), "names": sorted(state.probes) == sorted(names),
            "difference": max(differences), "errors": [probe.relative_error for probe in state.probes.values()],
            "cosines": [probe.cosine for probe in state.probes.values()],
            "is_told": all(told[name]["cosine"] == state.probes[name].cosine for name in names)}
