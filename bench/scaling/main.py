"""`./dev bench scaling`: options, what is missing, and the order of things. docs/scaling.md says what is measured and why."""
import argparse
import hashlib
import importlib.util
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

from lab import ending
from lab.machine import available_bytes, machine
from lab.namespaces import LinkError
from lab.processes import SOURCE, ProcessFailed

from .cluster import Cluster
from .progress import Progress
from .simulated import Codec, codec_facts, simulate
from .star import Star

CODEC = "topk(0.01) | pow2(bits=4) | auto"  # of averages, too
PLANS = ("gather", "sharded")
# Real daemons: chunks of 2^20 elements go round among the nodes, so 16 nodes have one each.
REAL_NODES, REAL_TENSORS, CHUNK = (2, 4, 8, 16), 16, 1 << 20
REAL_RATE, REAL_BURST = 20e6, 16 * 1024
WARM_UP_STEPS = 2
SETTLE_S = 0.6  # acknowledgements and credits that follow a step, and the status page, which comes four times a second
MANY_NODES = (2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
LARGE_NODES = (2, 8, 32, 128)
# ResNet-50's parameters in about as many pieces as PyTorch makes buckets of them, on a link of 1 Gbit/s; and a large model.
MODELS = {"25.6 M": {"elements": 25.6e6, "tensors": 4}, "1 G": {"elements": 1e9, "tensors": 16}}
NODES_OF = {"25.6 M": MANY_NODES, "1 G": LARGE_NODES}
MANY = {"rate": 1e9, "latency_us": 50, "step_ms": 300, "backward": 2 / 3, "cores": 4}
FAULTS = {"": {}, "straggler": {"straggler_ms": 200}, "broken": {"breaks": 0.0005}}
FAULT_MODEL, FAULT_NODES = "25.6 M", (4, 16, 64)
MEMORY_PER_NODE = 6e8  # of 16.8 M parameters: up to 22 B each by the daemon's count, 4 B more for numpy, and two programs


def parse_arguments(arguments):
    parser = argparse.ArgumentParser(prog="./dev bench scaling", formatter_class=argparse.RawDescriptionHelpFormatter, description="""\
What a step costs with more and more nodes: a simulation of up to 1,024 by the daemon's own job machines, and, as root, up to 16 real
daemons in network namespaces, held against it: those take five minutes on two cores that do nothing else, the simulation an hour or two of one
core. A run that was broken off is gone on with. Writes a table, CSV and PNG.""")
    parser.add_argument("--quick", action="store_true", help="up to 8 simulated nodes and 3 real ones: whether it works, in half a minute")
    parser.add_argument("--simulate-only", action="store_true", help="no real daemons, which need root")
    parser.add_argument("--steps", type=int, help="steps that count, of each number of nodes (default: 12; simulated: 5)")
    parser.add_argument("--output", type=Path, default=SOURCE / "build" / "scaling", help="folder of results (default: build/scaling)")
    parser.add_argument("--publish", action="store_true", help="also write docs/scaling.md with its picture and CSV")
    parser.add_argument("--report", action="store_true", help="measure nothing: tables from what lies in the folder of results")
    options = parser.parse_args(arguments)
    if options.steps is not None and options.steps < 1:
        parser.error(f"--steps is {options.steps}: allowed is a whole number from 1")
    options.output = options.output.resolve()
    return options


def missing(build, options):
    """What keeps the command from running here, in words; empty: nothing."""
    found = [f"{build / path}: ./dev build" for path in ("daemon/gradsieved", "cli/gradsieve", "client/libgradsieve.so",
                                                         "bench/scaling/gradsieve-simulate") if not (build / path).exists()]
    if options.simulate_only:
        return found
    if os.geteuid() != 0:
        found.append("root: network namespaces and link limits need it; run it with sudo, or with --simulate-only")
    found += [f"the program `{name}`: apt install iproute2" for name in ("ip", "tc") if shutil.which(name) is None]
    if importlib.util.find_spec("numpy") is None:
        found.append("Python's numpy: apt install python3-numpy")
    needed = MEMORY_PER_NODE * max(REAL_NODES)
    if not options.quick and available_bytes() < needed:
        found.append(f"memory: {available_bytes() / 1e9:.1f} GB are available, needed are {needed / 1e9:.1f} GB; end other programs, or take "
                     "--simulate-only")
    return found


def say(text):
    print(text, flush=True)


def run_real(build, plan, nodes, tensors, steps):
    """Real daemons: {"step_ms": [...], "sent": [bytes a node and step], "cpu_s": [of a daemon and step], "memory": [bytes a node]}."""
    with Star(nodes, REAL_RATE, REAL_BURST) as star, Cluster(star, build, plan, CODEC) as cluster:
        cluster.start_ranks(CODEC, tensors)
        cluster.steps(WARM_UP_STEPS)
        time.sleep(SETTLE_S)
        before, usage_before = star.sent_bytes(), cluster.usage()
        # Steps follow one another at once, so that a step lasts from one end to the next; the first one's begin is not known.
        ends = cluster.steps(steps + 1)
        time.sleep(SETTLE_S)
        sent = [(after - earlier) / (steps + 1) for earlier, after in zip(before, star.sent_bytes())]
        usage = cluster.usage()
    return {"step_ms": [1000 * (end - begin) for begin, end in zip(ends, ends[1:])], "sent": sent,
            "cpu_s": [(after - earlier) / (steps + 1) for (earlier, _), (after, _) in zip(usage_before, usage)],
            "memory": [memory for _, memory in usage]}


def real_rows(build, options, progress):
    """Real daemons beside the simulation of just those: the same link, and cores that all nodes share."""
    nodes_of = (2, 3) if options.quick else REAL_NODES
    tensors = [CHUNK // 16] * 4 if options.quick else [CHUNK] * REAL_TENSORS
    steps = options.steps or (3 if options.quick else 12)
    codec = Codec(**progress.found("codec", sum(tensors), make=lambda: vars(codec_facts(build, CODEC, sum(tensors)))))

    def row_of(plan, nodes):
        found = run_real(build, plan, nodes, tensors, steps)
        foreseen, = simulate(build, [nodes], plan, codec, codec, elements=sum(tensors), tensors=len(tensors), rate=REAL_RATE, latency_us=50,
                             cores=os.cpu_count(), shared_cores=True, steps=steps + 1)
        return {"plan": plan, "nodes": nodes, "elements": sum(tensors), **found, "simulated": foreseen}

    rows = []
    for plan in PLANS:
        for nodes in nodes_of:
            row = progress.found("real", plan, nodes, make=lambda: row_of(plan, nodes))
            found, foreseen = row, row["simulated"]
            say(f"   {plan:7} {nodes:2} nodes: {statistics.median(found['step_ms']):8.1f} ms a step, simulated {foreseen['step_ms']:8.1f}; "
                f"{statistics.mean(found['sent']) / 1e3:8.1f} kB a node, simulated {foreseen['sent_mean'] / 1e3:8.1f}")
            rows.append(row)
    return rows


def simulated_rows(build, options, progress):
    rows = []
    for model, shape in MODELS.items():
        codec = Codec(**progress.found("codec", model, make=lambda: vars(codec_facts(build, CODEC, int(shape["elements"])))))
        for fault, faults in FAULTS.items():
            if fault and model != FAULT_MODEL:
                continue
            for plan in PLANS:
                chosen = (2, 8) if options.quick else FAULT_NODES if fault else NODES_OF[model]
                for nodes in chosen:
                    began = time.monotonic()
                    steps = min(options.steps or 5, 5 if nodes <= 128 else 1) + 1
                    row, = progress.found("simulated", model, fault or "-", plan, nodes, make=lambda: simulate(
                        build, [nodes], plan, codec, codec, **shape, **MANY, **faults, steps=steps))
                    rows.append({"model": model, "elements": shape["elements"], "fault": fault, **row})
                    say(f"   {model:7} {fault or 'no fault':9} {plan:7} {nodes:5} nodes: {row['step_ms']:9.1f} ms a step, "
                        f"{row['sent_mean'] / 1e6:8.2f} MB a node ({time.monotonic() - began:.0f} s)")
    return rows


def measure(options, build):
    of_machine = machine()
    programs = [hashlib.sha256((build / path).read_bytes()).hexdigest() for path in ("daemon/gradsieved", "bench/scaling/gradsieve-simulate")]
    progress = Progress(options.output / "progress.json", {"programs": programs, "cpu": of_machine["cpu"], "quick": options.quick,
                                                           "steps": options.steps, "codec": CODEC})
    if len(progress):
        say(f"-- going on with a run that was broken off: {len(progress)} results are there")
    began = progress.found("began", make=lambda: {"at": time.strftime("%Y-%m-%d %H:%M"), "machine": of_machine})
    kept = {"began": began["at"], "machine": began["machine"], "quick": options.quick, "real": [], "codec": CODEC}
    if not options.simulate_only:
        say(f"-- real daemons in namespaces, {REAL_RATE / 1e6:g} Mbit/s each")
        kept["real"] = real_rows(build, options, progress)
    say("-- simulated")
    kept["simulated"] = simulated_rows(build, options, progress)
    kept["load_at_end"] = os.getloadavg()[0]
    draft = options.output / "run.json.draft"
    draft.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
    draft.rename(options.output / "run.json")
    progress.end()


def main(arguments=None):
    options = parse_arguments(arguments)
    build = Path(os.environ.get("GRADSIEVE_BUILD", SOURCE / "build" / "release"))
    if not options.report:
        lacking = missing(build, options)
        if lacking:
            sys.exit("scaling: it cannot run here. Missing:\n" + "\n".join(f"  - {what}" for what in lacking))
        options.output.mkdir(parents=True, exist_ok=True)
        ending.catch()
        try:
            measure(options, build)
        except ending.Ended as ended:
            print("scaling: interrupted; what was done is kept, and the same command goes on with it", file=sys.stderr)
            sys.exit(128 + ended.number)
        except (LinkError, ProcessFailed, OSError, subprocess.SubprocessError) as error:
            said = getattr(error, "stderr", None)
            sys.exit(f"scaling: stopped: {error}" + (f"\n{said}" if said else ""))
    if not (options.output / "run.json").exists():
        sys.exit(f"scaling: no run.json in {options.output}: allowed is a folder in which a run has ended; run it without --report, or "
                 "name the folder by --output")
    from .report import write_report
    write_report(options.output, options.publish, say)


if __name__ == "__main__":
    main()
