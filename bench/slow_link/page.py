"""The text of docs/slow-link.md around what was measured."""
import textwrap

from .catalog import CODECS, IN_PLACE
from .link import BURSTS_MIN, LATENCY, RATES, SHARE_MIN
from .network import BATCH, STEPS_BEFORE
from .plan import DEFAULT_TEXT
from .report import (AIM_SIZE, BUSY_LOAD, STEP_BYTES, aim_table, describe_machine, doubts, losing, markdown, peer_table, plan_table,
                     rows_of, table)

WIDTH = 138

HEAD = """\
# On a slow link

Written by `./dev bench slow-link --publish`; do not edit. What a step of averaging costs where machines are joined by a slow link:
gradsieve, and PyTorch's own ways on the same machine in the same run. Rows in which gradsieve loses are in the tables like the others.

{machine}
{doubts}
![Milliseconds a step, for each way, rate and size](figures/slow_link.png)

Figures of the picture and of the tables: [slow_link.csv](figures/slow_link.csv).

## How it is measured

- Two network namespaces on one machine, joined by a veth pair that `tc tbf` limits at both ends, latency {latency}:
{rates}
  Before anything is timed, single messages of the size of each payload go over the link after 50 ms of silence. Those of {bursts}
  bursts or more must take at least {share} x bytes x 8 / rate, or the command stops. Smaller payloads pass on the token bucket alone:
  they are marked with *.
- Two ranks, one in each namespace, and two gradsieved in each, one for plain text and one for CURVE. All share the machine's cores.
- Gradients are those of a convolutional network with exactly so many parameters, which trains on Fashion-MNIST (batch {batch} a rank);
  those of 5 steps after the first {before} are recorded, and handed in in turn. Nothing is tiled. A step has one gradient of each rank.
- Ways take turns, step by step, each round beginning with another one. A step is timed from the first rank's hand-in to the last
  rank's hand-back. All gradients are there when it begins: no backward pass hides anything.
- *In place*: the gradient lies, and the average is read, where the way itself works: slab and result area of gradsieve, the bucket of
  PyTorch. *With copies*: both lie in the parameters' `grad`. Of gradsieve this is `gradsieve.torch.Averager`, of PyTorch the copies
  into the buckets and back that DistributedDataParallel makes by default.
- PyTorch's ways are DistributedDataParallel's own hooks over Gloo, called with buckets as it makes them. All-reduce and fp16 have its
  default sizes. PowerSGD has one bucket: its hook starts all-reduces from callbacks, whose order over Gloo would differ between the
  ranks; warm start and error feedback are on.
{codecs}
- Bytes come from the interface's counters and include every header, acknowledgement and heartbeat. *Wire alone* is what they take at
  the rate.
- Ratios are of pairs, the two ways in the same round: their median and, in brackets, an interval that holds it with 95 % (order
  statistics, no distribution assumed). Where it contains 1 (or has fewer than 6 rounds), `?` says that it is undecided.
- Before it times, the command compares the averages of all ways: bit-identical on both ranks, and those of `all | f32` and Gloo equal
  to the mean.
- *One copy*: both ranks copy the gradient once in memory at the same time. The times of ways that send little are made of such passes.

What it does not show: a link with delay or losses (the kernel's tbf limits the rate alone), more than two nodes, GPUs, and how well
training goes: a step of PowerSGD or of a codec that sends a hundredth does not move a model as far as an exact one
([decisions](decisions/0005-default-codec.md), [codecs](codecs.md)).

Again, as root: `./dev bench slow-link --publish`, 3.5 hours on two cores; with `--slow-every 10`, ways that take more than a second a
step are measured ten times instead of a hundred, and it takes 75 minutes. `--quick` tries it out in a minute.
"""


def wrapped(text, indent=""):
    return textwrap.fill(text, WIDTH, subsequent_indent=indent or " " * (len(text) - len(text.lstrip())), break_long_words=False,
                         break_on_hyphens=False)


def page_text(raw, conditions):
    """The whole page. raw: of results.read_raw; conditions: of results.read_conditions."""
    weak = doubts(conditions)
    is_busy = conditions["machine"]["load"] > BUSY_LOAD
    care = f"**{'A try, not to be quoted' if is_busy else 'Read with care'}:** {'; '.join(weak)}."
    rates = ", ".join(f"{rate.name}bit/s with a burst of {rate.burst_kib} KiB" for rate in RATES.values())
    codecs = [f"`{codec}`" if codec else f"{name} (for one gradient a step `{DEFAULT_TEXT}`)" for name, codec in CODECS.items()]
    text = HEAD.format(machine=wrapped(describe_machine(conditions) + "."), doubts=f"\n{wrapped(care)}\n" if weak else "",
                       latency=LATENCY.replace("ms", " ms"), bursts=BURSTS_MIN, share=SHARE_MIN, batch=BATCH, before=STEPS_BEFORE,
                       rates=wrapped(f"  {rates}."), codecs=wrapped(f"- Codecs of gradsieve: {'; '.join(codecs)}.", "  "))
    aims = aim_table(raw)
    if len(aims) > 1:
        text += (f"\n## Aims\n\nThe default codec, plain text, {AIM_SIZE:,} parameters. *Undecided*: the interval contains the aim.\n"
                 f"Its passes over memory are counted with {STEP_BYTES} B an element on both nodes: gradient and residual read,\n"
                 "residual written.\n\n"
                 f"{markdown(aims)}\n")
    for (rate, parameters), cells in raw.items():
        text += _section(rate, parameters, cells, conditions)
    return text


def _section(rate, parameters, cells, conditions):
    """One rate and size."""
    rows, key = rows_of(cells, rate, parameters), f"{rate} {parameters}"
    text = f"\n## {parameters:,} parameters at {rate}bit/s\n\n{markdown(table(rows))}\n"
    for what, found in zip(("Slower than Gloo's all-reduce", "Undecided"), losing(rows)):
        if found:
            names = [f"{row.name}, {'in place' if row.mode == IN_PLACE else 'with copies'}" for row in found]
            text += "\n" + wrapped(f"{what}: {'; '.join(names)}.") + "\n"
    text += f"\nThe default codec, plain text, beside:\n\n{markdown(peer_table(cells))}\n"
    plans = conditions.get("plans", {}).get(key)
    if plans:
        text += ("\nWhat [`gradsieve plan`](operations.md#does-it-pay) foresaw of these gradients, with nothing hidden by a backward pass:\n\n"
                 f"{markdown(plan_table(rows, plans))}\n\n"
                 "What the fp16 hook does on a CPU beside sending, making 16-bit numbers and adding them, the plan does not count.\n")
    checks = [f"{size:,} B in {ms:.2f} ms {'*' if RATES[rate].is_exempt(size) else f'({100 * ms / wire:.0f} %)'}"
              for size, ms, wire in conditions["checks"].get(key, [])]
    if checks:
        text += "\n" + wrapped(f"Single messages on this link (of what the rate gives them): {'; '.join(checks)}.") + "\n"
    return text
