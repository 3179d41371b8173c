"""Training processes for training_loop_test.py: what docs/training-loop.md says of optimizers, clipping, schedules, buffers and
resuming. Run by rank_main.py with torchrun's environment variables."""
import functools
import gzip
import math
import os
import signal
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

import gradsieve
import gradsieve.torch
import torch_ranks
from torch_batches_ranks import averager_of
from torch_net import exact_mean, gradients, hash_of, join_processes, largest_difference, local_gradients, loss_of, seeded_net
from torch_ranks import EXACT, TIMEOUT_S, wrap

TOPK = "topk(0.05) | f32"
DATASET = Path("/usr/share/datasets/fashion-mnist")


def clipped_after():
    """The norm that clipping sees is the same on all ranks, bit for bit."""
    rank = join_processes()
    model, state = wrap(seeded_net(), codec=TOPK)
    optimizer = torch.optim.SGD(model.parameters(), 0.2, momentum=0.9)
    norms = []
    for step in range(1, 21):
        optimizer.zero_grad()
        loss_of(model, rank, step).backward()
        norms.append(float(nn.utils.clip_grad_norm_(model.parameters(), 0.1)))
        optimizer.step()
    return {"norms": norms, "hash": hash_of(model.parameters())}


def clipped_before():
    """With Averager each rank clips its own gradient, and the average is of what is left."""
    rank = join_processes()
    net, limit = seeded_net(), 0.05
    averaging = averager_of(net)
    loss_of(net, rank, 1).backward()
    nn.utils.clip_grad_norm_(net.parameters(), limit)
    averaging.average_gradients()
    averaging.close(TIMEOUT_S)
    reference, of_ranks = seeded_net(), []
    for of in (0, 1):
        local_gradients(reference, of, 1)
        nn.utils.clip_grad_norm_(reference.parameters(), limit)
        of_ranks.append(gradients(reference))
    unclipped = exact_mean(seeded_net(), 1)
    return {"difference": largest_difference(gradients(net), [(zero + one) * 0.5 for zero, one in zip(*of_ranks)]),
            "against_unclipped": largest_difference(gradients(net), unclipped)}


def clipped_in_the_hook():
    """With DDP a hook around ours clips each bucket of this rank before it is handed in."""
    rank = join_processes()
    limit = 0.05
    model = nn.parallel.DistributedDataParallel(seeded_net())  # one bucket
    state = gradsieve.torch.State(model, torch_ranks.job_name, codec=EXACT, timeout=TIMEOUT_S, start_timeout=TIMEOUT_S)
    torch_ranks.states.append(state)

    def clipping_hook(state: object, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        buffer = bucket.buffer()
        buffer.mul_((limit / (buffer.norm() + 1e-6)).clamp(max=1))  # as clip_grad_norm_ does
        return gradsieve.torch.hook(state, bucket)

    model.register_comm_hook(state, clipping_hook)
    loss_of(model, rank, 1).backward()
    reference, of_ranks = seeded_net(), []
    for of in (0, 1):
        local_gradients(reference, of, 1)
        nn.utils.clip_grad_norm_(reference.parameters(), limit)
        of_ranks.append(gradients(reference))
    return largest_difference(gradients(model), [(zero + one) * 0.5 for zero, one in zip(*of_ranks)])


def weight_decay():
    """Weight decay of the optimizer reaches every weight in every step, also those whose gradient was not sent."""
    rank = join_processes()
    model, state = wrap(seeded_net(), codec=TOPK)
    rate, decay = 0.5, 0.01
    optimizer = torch.optim.SGD(model.parameters(), rate, weight_decay=decay)
    before = [parameter.detach().clone() for parameter in model.parameters()]
    loss_of(model, rank, 1).backward()
    optimizer.step()
    silent, difference = 0, 0.0
    for old, parameter in zip(before, model.parameters()):
        quiet = parameter.grad == 0
        silent += int(quiet.sum())
        if quiet.any():
            difference = max(difference, float((parameter.detach() - old * (1 - rate * decay))[quiet].abs().max()))
    return {"silent": silent, "of": sum(parameter.numel() for parameter in before), "difference": difference}


class Normed(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 3))

    def forward(self, inputs):
        return self.layers(inputs)


def batch_norm(with_ddp):
    """Running means after a step: DDP copies rank 0's in the next forward pass, Averager leaves each rank its own."""
    rank = join_processes()
    torch.manual_seed(5)
    net = Normed()
    if with_ddp:
        model, _ = wrap(net)
    else:
        model, averaging = net, averager_of(net)
    for step in (1, 2):
        net.zero_grad()
        loss_of(model, rank, step).backward()
        if not with_ddp:
            averaging.average_gradients()
    own = hash_of([net.layers[1].running_mean])
    if with_ddp:
        model(torch.zeros(4, 8))  # in training mode; buffers are copied before it
    else:
        averaging.close(TIMEOUT_S)
        for buffer in net.buffers():
            dist.broadcast(buffer, 0)
    mean = net.layers[1].running_mean
    return {"own": own, "shared": hash_of([mean]), "parameters": hash_of(net.parameters())}


def schedule(knows_optimizer):
    """A warm-up from 0 and a decay by a scheduler: by which factor what was kept back is multiplied when the rate halves."""
    net = nn.Linear(64, 64, bias=False)
    optimizer = torch.optim.SGD(net.parameters(), 1.0)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: (0.0, 1.0, 0.5)[min(step, 2)])
    averaging = averager_of(net, "topk(0.001) | f32 | auto", optimizer=optimizer if knows_optimizer else None)
    values = [8.0, 7.0, 6.0, 5.0, 4.0, 3.0, 2.0, 1.0]
    given = torch.zeros(64, 64)
    found = []
    for step in range(3):  # rates 0, 1 and 0.5
        net.weight.grad = given.clone()
        if step == 1:
            net.weight.grad.view(-1)[:8] = torch.tensor(values)
        averaging.average_gradients()
        found.append(net.weight.grad.clone())
        optimizer.step()
        scheduler.step()
    averaging.close(TIMEOUT_S)
    sent = int((found[1] != 0).sum())
    return {"sent": sent, "factor": float(found[2].max()) / values[sent]}


def resumed(checkpoint, steps, dies=False, world_changes=False):
    """Goes on from the checkpoint if there is one. dies: the program is killed after its last step, as by a crash."""
    rank = join_processes()
    model, state = wrap(seeded_net(), codec=TOPK, run_id="one")
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    first_step, done = state.job.first_step(), 0
    path = Path(checkpoint)
    if path.exists():
        saved = torch.load(path)
        model.module.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        done = saved["step"]
    for step in range(done + 1, done + 1 + steps):
        optimizer.zero_grad()
        loss_of(model, rank, step).backward()
        optimizer.step()
    dist.barrier()
    result = {"first_step": first_step, "done": done, "last_step": state.last_step, "hash": hash_of(model.parameters())}
    if world_changes:
        result["told"] = told_of_lost_state(state.job)
    if dies:
        if rank == 0:
            torch.save({"model": model.module.state_dict(), "optimizer": optimizer.state_dict(), "step": done + steps}, path)
        dist.barrier()
        print(f"stepped {result['hash']}", flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    return result


def checkpointed(checkpoint, steps, save_at=0, load="", portable=False, with_ddp=True):
    """Steps up to `steps`, keeping a checkpoint after `save_at`; begins where the checkpoint says if there is one. load: how it
    is handed over, "resume" or "load_state_dict". portable: each rank keeps a file of its own."""
    rank = join_processes()
    path = Path(f"{checkpoint}{rank if portable else ''}")
    saved = torch.load(path) if load else None
    options = {"codec": TOPK, "run_id": "one", "resume": saved["gradsieve"] if load == "resume" else None}
    net = seeded_net()
    try:
        model, state = wrap(net, **options) if with_ddp else (net, averager_of(net, options.pop("codec"), **options))
        if load == "load_state_dict":
            state.load_state_dict(saved["gradsieve"])
    except gradsieve.GradsieveError as error:
        return {"error": f"{type(error).__name__}: {error.text}"}
    optimizer = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9)
    done = 0
    if saved:
        net.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        done = saved["step"]
    for step in range(done + 1, steps + 1):
        optimizer.zero_grad()
        loss_of(model, rank, step).backward()
        if not with_ddp:
            state.average_gradients()
        optimizer.step()
        if step == save_at and (rank == 0 or portable):
            torch.save({"model": net.state_dict(), "optimizer": optimizer.state_dict(), "step": step,
                        "gradsieve": state.state_dict(portable=portable)}, path)
    dist.barrier()
    kept = torch.load(path)["gradsieve"] if save_at else {}
    result = {"done": done, "last_step": state.last_step, "hash": hash_of(net.parameters()), "error": "",
              "small": {key: value for key, value in kept.items() if key != "state"}, "bytes": len(kept.get("state", b""))}
    state.close(TIMEOUT_S)
    return result


def told_of_lost_state(job):
    deadline = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline:
        try:
            return job.status()["state_text"]
        except gradsieve.NotFound:
            continue
    raise AssertionError("the status page does not tell of the job")


# ---- measured runs ----

def read(name, header_bytes):
    return torch.frombuffer(bytearray(gzip.open(DATASET / f"{name}-ubyte.gz").read()[header_bytes:]), dtype=torch.uint8)


@functools.cache  # one process runs many loops
def examples(name):
    """Pictures, a row each, and their labels: of `train` or `t10k`."""
    return read(f"{name}-images-idx3", 16).reshape(-1, 784).float() / 255, read(f"{name}-labels-idx1", 8).long()


def measured(codec, steps, seed, optimizer="sgd", clip_after=0.0, clip_before=0.0, decay=0.0, has_schedule=False, knows_optimizer=True):
    """Fashion-MNIST, a perceptron, 32 pictures of each rank a step: test accuracy, and norms of the averaged gradient."""
    rank = join_processes()
    world = dist.get_world_size()
    pictures, labels = examples("train")
    torch.manual_seed(seed)
    net = nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10))
    make = {"sgd": lambda: torch.optim.SGD(net.parameters(), 0.05, momentum=0.9, weight_decay=decay),
            "adam": lambda: torch.optim.Adam(net.parameters(), 1e-3)}
    optimizing = make[optimizer]()
    averaging = averager_of(net, codec, optimizer=optimizing if knows_optimizer else None)
    warm = 0.1 * steps
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizing, lambda step: 1.0 if not has_schedule else min(
        (step + 1) / warm, 0.5 * (1 + math.cos(math.pi * max(0.0, (step - warm) / (steps - warm))))))
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))
    norms = []
    for step in range(steps):
        rows = order[((torch.arange(32) + step * 32) * world + rank) % len(labels)]
        optimizing.zero_grad()
        nn.functional.cross_entropy(net(pictures[rows]), labels[rows]).backward()
        if clip_before:
            nn.utils.clip_grad_norm_(net.parameters(), clip_before)
        averaging.average_gradients()
        norms.append(float(nn.utils.clip_grad_norm_(net.parameters(), clip_after or math.inf)))
        optimizing.step()
        scheduler.step()
    averaging.close(TIMEOUT_S)
    tested, answers = examples("t10k")
    with torch.no_grad():
        accuracy = float((net(tested).argmax(1) == answers).float().mean())
    late = sorted(norms[steps // 2:])
    return {"accuracy": accuracy, "hash": hash_of(net.parameters()), "norm_median": late[len(late) // 2], "norm_largest": late[-1]}
