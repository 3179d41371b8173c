#!/usr/bin/python3
"""What gradsieve's hook costs a step of DistributedDataParallel, beside DDP's own `noop` hook (which averages nothing) and DDP's
all-reduce over Gloo: two processes on two daemons, loopback, CPUs. Needs Debian's python3-torch and a built tree:

    GRADSIEVE_BUILD=build/release GRADSIEVE_LIBRARY=build/release/client/libgradsieve.so bench/torch_hook.py [steps]

Prints medians and quartiles in milliseconds."""
import statistics
import sys
import time
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(SOURCE / "python"), str(SOURCE / "tests" / "python"), str(SOURCE / "bench")]
from python_cluster import Cluster  # noqa: E402

WARM_UP_STEPS = 20
HOOKS = {"noop": None, "all-reduce": None, "all | f32": "all | f32", "topk(0.01) | pow2(bits=4)": "topk(0.01) | pow2(bits=4) | auto"}


def step_times(steps):
    """On a rank: {hook: seconds and CPU seconds of each step}, forward and backward, of a perceptron of 1.3 million parameters. The hooks take
    turns, so that whatever else the machine does meets all of them."""
    import torch
    import torch.distributed as dist
    from torch.distributed.algorithms.ddp_comm_hooks import debugging_hooks
    from torch.nn.parallel import DistributedDataParallel

    import gradsieve.torch

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    inputs, labels = torch.randn(32, 784), torch.randint(10, (32,))
    models, states, found = {}, [], {name: [] for name in HOOKS}
    for name, codec in HOOKS.items():
        models[name] = DistributedDataParallel(torch.nn.Sequential(
            torch.nn.Linear(784, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 512), torch.nn.ReLU(), torch.nn.Linear(512, 10)))
        if name == "noop":
            models[name].register_comm_hook(None, debugging_hooks.noop_hook)
        elif codec:
            states.append(gradsieve.torch.register(models[name], job=name, codec=codec))
    for step in range(WARM_UP_STEPS + steps):
        for name, model in models.items():
            model.zero_grad()
            dist.barrier()  # so that no rank's step contains the other one's delay before it
            started, cpu = time.perf_counter(), time.process_time()
            torch.nn.functional.cross_entropy(model(inputs), labels).backward()
            if step >= WARM_UP_STEPS:
                found[name].append((time.perf_counter() - started, time.process_time() - cpu))
    for state in states:
        state.close()
    return found


def main():
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    path = {"PYTHONPATH": ":".join(sys.path[:3])}
    with Cluster(2) as cluster:
        ran = cluster.run_ranks("torch_hook:step_times", 2, timeout_s=600, environment=path, steps=steps)
    print(f"{steps} steps, rank 0, forward and backward pass: median (quartiles), and the median beyond noop's")
    for kind, place in (("elapsed", 0), ("CPU of the training process", 1)):
        print(f"{kind}:")
        base = statistics.median(times[place] for times in ran[0]["noop"])
        for name, times in ran[0].items():
            low, middle, high = (1000 * value for value in statistics.quantiles([each[place] for each in times], n=4))
            print(f"  {name:28} {middle:6.2f} ms ({low:.2f} .. {high:.2f})   {middle - 1000 * base:+.2f} ms")


if __name__ == "__main__":
    main()
