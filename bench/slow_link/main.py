"""`./dev bench slow-link`: options, what is missing, and the order of things. docs/slow-link.md says what is measured and why."""
import argparse
import importlib.util
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from lab import ending
from lab.machine import available_bytes
from lab.processes import SOURCE, ProcessFailed, die_with_parent

from . import network
from .catalog import COPY, EXACT, METHODS, MODES
from .link import BURSTS_MIN, RATES, Link, LinkError
from .cluster import OPEN_BLAS, Cluster, rank_environment
from .plan import foreseen
from .results import Writer, machine, write_conditions

SIZES = (8_396_800, 25_600_000)
QUICK_SIZE, QUICK_RATES, QUICK_ROUNDS = 262_144, ("100M",), 6
RECORDED = 5  # steps whose gradients are kept; odd, so that both modes meet all of them
FREE_ROUNDS = 3  # without a limit, to learn payload sizes; PowerSGD begins to compress meanwhile
WARM_UP_ROUNDS = 2
EXACT_ERROR_MAX = 1e-6
SLOW_MS = 1000
MEMORY_PER_PARAMETER = 320  # bytes; measured 281 at 25.6 M: 13 ways, two nodes, recorded gradients
SAME_SIZE = 1.02  # payloads no further apart share one message of the link's check


def parse_arguments(arguments):
    parser = argparse.ArgumentParser(prog="./dev bench slow-link", formatter_class=argparse.RawDescriptionHelpFormatter, description="""\
Averages recorded gradients between two network namespaces whose link is slow: gradsieve, and PyTorch's own ways beside it, in turn.
Needs root. The whole of it takes about 3.5 hours on two cores, with --slow-every 10 about 75 minutes. Writes a table, CSV and PNG.""")
    parser.add_argument("--quick", action="store_true", help=f"one small size at 100 Mbit/s, {QUICK_ROUNDS} rounds: whether it works")
    parser.add_argument("--rates", nargs="+", choices=list(RATES), help="default: all")
    parser.add_argument("--sizes", nargs="+", type=int, metavar="N", help=f"parameters; default: {' '.join(map(str, SIZES))}")
    parser.add_argument("--rounds", type=int, help="steps of each way that count (default: 100)")
    parser.add_argument("--slow-every", type=int, default=1, metavar="K",
                        help="ways that take more than 1 s a step take part in every K-th round only (default: 1)")
    parser.add_argument("--output", type=Path, default=SOURCE / "build" / "slow-link", help="folder of results (default: build/slow-link)")
    parser.add_argument("--publish", action="store_true", help="also write docs/slow-link.md with its picture and CSV")
    parser.add_argument("--report", action="store_true", help="measure nothing: tables from what lies in the folder of results")
    options = parser.parse_args(arguments)
    options.rates = options.rates or list(QUICK_RATES if options.quick else reversed(RATES))
    options.sizes = options.sizes or [QUICK_SIZE] if options.quick else options.sizes or list(SIZES)
    options.rounds = (QUICK_ROUNDS if options.quick else 100) if options.rounds is None else options.rounds
    for name, value in (("--rounds", options.rounds), ("--slow-every", options.slow_every)):
        if value < 1:
            parser.error(f"{name} is {value}: allowed is a whole number from 1")
    options.output = options.output.resolve()
    for size in options.sizes:
        if size < network.SMALLEST:
            parser.error(f"--sizes {size}: allowed is {network.SMALLEST} or more")
        try:
            network.widths_of(size)
        except ValueError as error:
            parser.error(f"--sizes {size}: {error}")
    return options


def missing(build, sizes=()):
    """What keeps the command from running here, in words; empty: nothing."""
    found = []
    if os.geteuid() != 0:
        found.append("root: network namespaces and link limits need it; run it with sudo")
    found += [f"the program `{name}`: apt install iproute2" for name in ("ip", "tc") if shutil.which(name) is None]
    found += [f"Python's {module}: apt install {package}" for module, package in (("torch", "python3-torch"), ("numpy", "python3-numpy"))
              if importlib.util.find_spec(module) is None]
    if not network.DATA.is_dir():
        found.append(f"{network.DATA}: apt install dataset-fashion-mnist")
    found += [f"{build / path}: ./dev build" for path in ("daemon/gradsieved", "cli/gradsieve", "client/libgradsieve.so")
              if not (build / path).exists()]
    needed = MEMORY_PER_PARAMETER * max(sizes, default=0)
    if available_bytes() < needed:
        found.append(f"memory: {available_bytes() / 1e9:.1f} GB are available, needed are {needed / 1e9:.1f} GB for {max(sizes):,} "
                     "parameters; end other programs, or name smaller --sizes")
    return found


def say(text):
    print(text, flush=True)


def recorded_gradients(parameters, options, build):
    """The file of gradients; made where it does not lie there."""
    path = options.output / network.file_name(parameters, RECORDED)
    if not path.exists():
        say(f"-- recording gradients: a network of {parameters:,} parameters trains on Fashion-MNIST")
        subprocess.run([sys.executable, "-m", "slow_link.network", str(parameters), str(path), str(RECORDED)], check=True,
                       env=rank_environment(build), preexec_fn=die_with_parent, start_new_session=True)
    return path


class Comparison:
    """All ways at all rates, for one size. `write` gets each step that counts."""

    def __init__(self, cluster, link, parameters, options, write):
        self._cluster, self._link, self._parameters, self._options, self._write = cluster, link, parameters, options, write
        self._turns = dict.fromkeys(METHODS, 0)  # steps done; says which recorded gradient is next

    def _step(self, name, mode, is_checked=False):
        """One step: milliseconds from the first hand-in to the last hand-back, and bytes sent by each node."""
        answers = self._cluster.step(name, mode, self._turns[name] % RECORDED, is_checked)
        self._turns[name] += 1
        if is_checked:
            self._check(name, mode, answers)
        took = max(answer["ended"] for answer in answers) - min(answer["began"] for answer in answers)
        return 1000 * took, [answer["bytes"] for answer in answers]

    @staticmethod
    def _check(name, mode, answers):
        if len({answer["checksum"] for answer in answers}) != 1:
            raise ProcessFailed(f"{name}, {mode}: the ranks have different averages")
        error = max(answer["error"] for answer in answers)
        if name in EXACT and not error <= EXACT_ERROR_MAX:
            raise ProcessFailed(f"{name}, {mode}: its average is off by {error:.2g} of its norm, allowed are {EXACT_ERROR_MAX}")

    def learn(self):
        """Rounds without a limit: are averages right, and how much is sent? {method: bytes per node}."""
        self._link.shape(None)
        sizes = {}
        for turn in range(FREE_ROUNDS):
            for name in METHODS:
                sent = [self._step(name, mode, is_checked=turn == 0)[1] for mode in MODES]
                sizes[name] = max(max(both) for both in sent)
        return sizes

    def run(self, rate, sizes):
        """Limits the link, checks it, measures. Gives back the check: a list of (bytes, ms, ms at the rate)."""
        self._link.shape(rate)
        tried = []
        for size in sorted(size for name, size in sizes.items() if name != COPY.name):
            if not tried or size > SAME_SIZE * tried[-1]:
                tried.append(size)
        checked = [(size, 1000 * seconds, 1000 * rate.wire_s(size)) for size, seconds in self._link.check(tried, rate).items()]
        for size, ms, wire in checked:
            remark = f"   (below {BURSTS_MIN} bursts: exempt)" if rate.is_exempt(size) else ""
            say(f"   single message of {size:>11,} B: {ms:10.2f} ms, at the rate {wire:10.2f} ms{remark}")
        usual = {name: max(self._step(name, mode)[0] for mode in MODES) for _ in range(WARM_UP_ROUNDS) for name in METHODS}
        names, last_said = list(METHODS), time.monotonic()
        for turn in range(self._options.rounds):
            first = turn % len(names)  # none follows the same one always
            for name in names[first:] + names[:first]:
                if usual[name] > SLOW_MS and turn % self._options.slow_every:
                    continue
                for mode in MODES if turn % 2 == 0 else MODES[::-1]:
                    ms, sent = self._step(name, mode)
                    self._write(rate.name, self._parameters, name, mode, turn, f"{ms:.4f}", *sent)
            if time.monotonic() - last_said > 20:
                last_said = time.monotonic()
                say(f"   round {turn + 1} of {self._options.rounds}")
        return checked


def measure(options, build):
    """Runs everything; results in options.output."""
    conditions = {"arguments": sys.argv[1:], "began": time.strftime("%Y-%m-%d %H:%M"), "rounds": options.rounds,
                  "slow_every": options.slow_every, "quick": options.quick, "machine": machine(), "checks": {}, "plans": {}}
    gradients = {size: recorded_gradients(size, options, build) for size in options.sizes}
    conditions["machine"]["load"] = os.getloadavg()[0]
    began = time.monotonic()
    writer = Writer(options.output)
    try:
        with Link() as link:
            for size in options.sizes:
                with Cluster(link, build) as cluster:
                    say(f"-- {size:,} parameters: four daemons, two ranks, {len(METHODS)} ways")
                    link.shape(None)
                    cluster.start_ranks(size, gradients[size], METHODS)
                    comparison = Comparison(cluster, link, size, options, writer.add)
                    payloads = comparison.learn()
                    for rate in (RATES[name] for name in options.rates):
                        say(f"-- {size:,} parameters at {rate.name}bit/s, burst {rate.burst_kib} KiB")
                        conditions["checks"][f"{rate.name} {size}"] = comparison.run(rate, payloads)
                        conditions["plans"][f"{rate.name} {size}"] = foreseen(build, size, gradients[size], rate)
                        conditions["minutes"] = (time.monotonic() - began) / 60
                        conditions["load_at_end"] = os.getloadavg()[0]
                        write_conditions(options.output, conditions)
                    cluster.end_ranks()
    finally:
        writer.close()


def main(arguments=None):
    options = parse_arguments(arguments)
    build = Path(os.environ.get("GRADSIEVE_BUILD", SOURCE / "build" / "release"))
    if not options.report:
        lacking = missing(build, options.sizes)
        if lacking:
            sys.exit("slow-link: it cannot run here. Missing:\n" + "\n".join(f"  - {what}" for what in lacking))
        if not OPEN_BLAS.is_dir():
            say("-- libopenblas0-pthread is not installed: PowerSGD runs on the reference BLAS, which is not fair to it")
        options.output.mkdir(parents=True, exist_ok=True)
        ending.catch()
        try:
            measure(options, build)
        except ending.Ended as ended:
            print(f"slow-link: interrupted; what was measured lies in {options.output / 'raw.csv'}", file=sys.stderr)
            sys.exit(128 + ended.number)
        except (LinkError, ProcessFailed, OSError, subprocess.SubprocessError) as error:
            sys.exit(f"slow-link: stopped: {error}")
    if not (options.output / "run.json").exists():
        sys.exit(f"slow-link: no run.json in {options.output}: allowed is a folder in which at least one rate was measured to its end; "
                 "run it without --report, or name the folder by --output")
    from .report import write_report
    write_report(options.output, options.publish, say)


if __name__ == "__main__":
    main()
