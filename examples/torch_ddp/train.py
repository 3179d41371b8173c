#!/usr/bin/env python3
"""DistributedDataParallel through gradsieve: a small convolutional network on Fashion-MNIST, or on random pictures.

    torchrun --nproc_per_node 2 --nnodes 2 --node_rank 0 --master_addr HOST train.py
    srun --nodes 2 --ntasks-per-node 2 train.py

Prints accuracy, a hash of all parameters (the same on every rank) and the daemon's wire ratio."""
from __future__ import annotations

import argparse
import hashlib
import os
import re
import time

import fashion_mnist
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import gradsieve
import gradsieve.torch

CODEC = "topk(0.002) | pow2(bits=4) | auto"
STATUS_DEADLINE_S = 30.0


def first_host(nodes: str) -> str:
    """Of a list as Slurm writes it, such as node[01-04,7],login."""
    return re.sub(r"\[(\d+)[^\]]*\]", r"\1", nodes).split(",")[0]


def launch_variables() -> None:
    """torch.distributed reads torchrun's variables; under Slurm they are made from Slurm's. gradsieve reads both."""
    for ours, slurms in (("RANK", "SLURM_PROCID"), ("WORLD_SIZE", "SLURM_NTASKS"), ("LOCAL_RANK", "SLURM_LOCALID")):
        if ours not in os.environ and slurms in os.environ:
            os.environ[ours] = os.environ[slurms]
    if "MASTER_ADDR" not in os.environ and "SLURM_JOB_NODELIST" in os.environ:
        os.environ["MASTER_ADDR"] = first_host(os.environ["SLURM_JOB_NODELIST"])
    os.environ.setdefault("MASTER_PORT", "29500")


def make_network() -> torch.nn.Module:
    return torch.nn.Sequential(
        torch.nn.Conv2d(1, 16, 3, stride=2, padding=1), torch.nn.ReLU(), torch.nn.Conv2d(16, 32, 3, stride=2, padding=1),
        torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(32 * 7 * 7, 256), torch.nn.ReLU(),
        torch.nn.Linear(256, fashion_mnist.CLASSES))


def hash_of(model: torch.nn.Module) -> str:
    digest = hashlib.sha256()
    for parameter in model.parameters():
        digest.update(parameter.detach().cpu().numpy().tobytes())
    return digest.hexdigest()


def wire_ratio(job: gradsieve.Job, step: int) -> float | None:
    """As the daemon counts it; None on a single node. Its status page follows the job a second later at most."""
    deadline = time.monotonic() + STATUS_DEADLINE_S
    while time.monotonic() < deadline:
        try:
            entry = job.status()
        except gradsieve.NotFound:
            entry = {"groups": []}
        if any(group["committed_step"] >= step for group in entry["groups"]):
            return None if entry["wire_ratio"] is None else float(entry["wire_ratio"])
        time.sleep(0.1)
    raise RuntimeError(f"the status page does not tell of step {step} after {STATUS_DEADLINE_S} s: is the daemon alive?")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--job", default="torch_ddp")
    parser.add_argument("--codec", default=CODEC, help=f"which gradients travel; 'all | f32' sends all (default: {CODEC})")
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--batch", type=int, default=64, help="pictures per rank and step")
    parser.add_argument("--rate", type=float, default=0.05)
    parser.add_argument("--synthetic", action="store_true", help="random pictures instead of Fashion-MNIST")
    parser.add_argument("--fallback", choices=["allreduce"], help="go on without the daemon")
    return parser.parse_args()


def main() -> None:
    options = parse_arguments()
    launch_variables()
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0"))) if torch.cuda.is_available() else torch.device("cpu")
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(1)
    model = DistributedDataParallel(make_network().to(device))
    optimizer = torch.optim.SGD(model.parameters(), options.rate, momentum=0.9)
    state = gradsieve.torch.register(model, options.job, codec=options.codec, optimizer=optimizer, fallback=options.fallback)

    pictures, labels = fashion_mnist.synthetic(8_000, 1) if options.synthetic else fashion_mnist.load("train")
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(2))[rank::world_size]
    started = time.monotonic()
    for step in range(options.steps):
        chosen = order[(torch.arange(options.batch) + step * options.batch) % len(order)]
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(pictures[chosen].to(device)), labels[chosen].to(device))
        loss.backward()  # averages
        optimizer.step()
    seconds = time.monotonic() - started

    hashed = hash_of(model)
    if not state.fallback_steps:
        state.job.check_equal(gradsieve.digest_of(hashed.encode()))  # raises Mismatch if a rank has other parameters
    ratio = wire_ratio(state.job, state.last_step) if not state.fallback_steps else None
    pictures, labels = fashion_mnist.synthetic(1_000, 2) if options.synthetic else fashion_mnist.load("t10k")
    with torch.no_grad():
        accuracy = float((model.module(pictures.to(device)).argmax(1).cpu() == labels).float().mean())
    print(f"rank {rank}: accuracy {accuracy:.4f}, {1000 * seconds / options.steps:.1f} ms a step, wire ratio "
          f"{'none' if ratio is None else f'{ratio:.1f}'}, parameters {hashed[:16]}", flush=True)
    state.close()


main()
