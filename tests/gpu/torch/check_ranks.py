"""A training process of gradsieve-torch-check: runs the checks of a group one after the other, and prints one line of JSON for each as it
ends. A check that fails on one rank is told to all, so that none waits for another's next one. Run by rank_main.py."""
import datetime
import importlib
import json
import re
import time
import traceback
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import gradsieve
import gradsieve.torch

TIMEOUT_S = 20
EXACT = "all | f32"
TOPK = "topk(0.01) | pow2(bits=4) | auto"
VARIANCE = "variance(1.5) | pow2(bits=4) | auto"
_MODULES = {"hook": "hook_checks", "samples": "sample_checks", "loop": "loop_checks", "cost": "cost_checks", "cost-alone": "cost_checks"}


@dataclass
class Context:
    """What a check has."""

    device: torch.device
    is_few: bool
    rank: int = 0
    world: int = 1
    name: str = ""  # of the check at hand
    job: str = ""  # of the same
    states: list = field(default_factory=list)  # of this check; closed behind it

    def wrap(self, net, codec=EXACT, watch=None, bucket_cap_mb=0.01, find_unused_parameters=False, **options):
        """The model with the hook; small buckets, so that there are several. watch: called with each bucket before it is handed in."""
        model = DistributedDataParallel(net, bucket_cap_mb=bucket_cap_mb, find_unused_parameters=find_unused_parameters)
        state = gradsieve.torch.State(model, self.job, codec=codec, timeout=TIMEOUT_S, start_timeout=TIMEOUT_S, **options)
        self.states.append(state)

        def hook(state, bucket):
            if watch:
                watch(bucket)
            return gradsieve.torch.hook(state, bucket)

        model.register_comm_hook(state, hook)
        return model, state

    def gather(self, tensors):
        """Those of every rank, exactly: [[...] of rank 0, ...], on the host."""
        own = [tensor.detach().cpu() for tensor in tensors]
        found = [None] * self.world
        dist.all_gather_object(found, own)
        return found

    def batch(self, rank, step, rows=16, width=8):
        generator = torch.Generator().manual_seed(1000 * rank + step)
        inputs = torch.randn(rows, width, generator=generator)
        return inputs.to(self.device), ((inputs.sum(1) > 0).long() + (inputs[:, 0] > 1).long()).to(self.device)

    def expect_equal_ranks(self, model):
        """A hash of all parameters, the same on every rank."""
        hashed = hash_of(model.parameters())
        found = [None] * self.world
        dist.all_gather_object(found, hashed)
        expect(len(set(found)) == 1, f"parameters differ: {found}")
        return hashed[:12]

    def entry(self, job, step):
        """The daemon's words of a job, once they tell of `step`."""
        deadline = time.monotonic() + TIMEOUT_S
        while time.monotonic() < deadline:
            try:
                entry = job.status()
            except gradsieve.NotFound:
                continue
            if entry["groups"][0]["committed_step"] >= step:
                return entry
        raise AssertionError(f"the status page does not tell of step {step}")


def has_gloo_for(dtype, device):
    """Whether DDP's own broadcast at its start can send the type."""
    try:
        dist.broadcast(torch.zeros(1, dtype=dtype, device=device), 0)
        return True
    except RuntimeError:
        return False


def hash_of(tensors):
    return f"{gradsieve.digest_of(b''.join(bytes(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy()) for tensor in tensors)):016x}"


def expect(holds, text):
    if not holds:
        raise AssertionError(text)


def _all_well(is_well):
    flag = torch.tensor([float(is_well)])
    dist.all_reduce(flag, dist.ReduceOp.MIN)
    return bool(flag.item())


def run(group, device, is_few):
    context = Context(torch.device("cuda", 0) if device == "cuda" else torch.device("cpu"), is_few)
    torch.backends.cudnn.allow_tf32 = False  # what is compared is compared in float32
    dist._DEFAULT_FIRST_BUCKET_BYTES = 4096  # else a small model is one bucket
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=TIMEOUT_S))
    context.rank, context.world = dist.get_rank(), dist.get_world_size()
    if context.rank == 0:
        where = torch.cuda.get_device_name(0) if device == "cuda" else "CPU"
        print(f"torch {torch.__version__}, {where}, {context.world} ranks", flush=True)
    checks = importlib.import_module(_MODULES[group]).checks(context)
    for name, check in checks.items():
        context.name = f"{group}: {name}"
        context.job = re.sub("[^a-z0-9]+", "-", context.name.lower())
        if isinstance(check, str):
            print(f"skipped: {context.name}: {check}", flush=True)
            continue
        began, is_ok, detail = time.monotonic(), True, ""
        try:
            detail = check()
        except Exception:
            is_ok, detail = False, traceback.format_exc()
        try:
            is_well = _all_well(is_ok)
            while context.states:
                context.states.pop().close(5.0 if is_well else 1.0)
        except Exception:
            is_ok, is_well, detail = False, False, detail + traceback.format_exc()
        context.states.clear()
        print("check " + json.dumps({"name": context.name, "ok": is_ok, "detail": detail, "seconds": time.monotonic() - began}), flush=True)
        if not is_well and is_ok:
            print(f"another rank failed in {context.name}", flush=True)
    return len(checks)
