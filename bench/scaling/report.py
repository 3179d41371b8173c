"""Tables, CSV and the page of what was measured. Pure but for the files that `write_report` writes."""
import csv
import json
import shutil
import statistics
import subprocess
import sys
import textwrap
from pathlib import Path

from lab.processes import SOURCE

WIDTH = 138
PAYLOADS_MAX = 2.1  # of a node's bytes, sharded
RATIO_LOSS_MAX = 0.10  # from the fewest to the most nodes
GRADIENT_BITS = 1e10  # for a core of the daemon's, of fp32
BUSY_LOAD = 1.0
FIELDS = ("kind", "model", "fault", "plan", "nodes", "payload_bytes", "sent_mean", "sent_most", "messages", "step_ms", "longest_ms",
          "kept_bytes", "planned_ms", "wire_ratio")

HEAD = """\
# With many nodes

Written by `./dev bench scaling --publish`; do not edit. What a node sends, and what a step takes, as the number of nodes grows: by the
[gather plan](codecs.md#the-sharded-plan), in which every node sends its payload to every other one, and by the sharded plan, in which each node
averages a part of the model and sends the average on. Measured between up to {most_real} daemons, and simulated for up to {most}.

{machine}
{doubts}
![Bytes that a node sends, and milliseconds a step, over the number of nodes](figures/scaling.png)

Figures of the picture and of the tables: [scaling.csv](figures/scaling.csv). Codec, also of averages: `{codec}`.

## How it is done

- **Measured.** Each node is a network namespace with one daemon and one training process, behind a veth pair that `tc tbf` limits at both
  ends to {rate:g} Mbit/s; a bridge in one more namespace is the switch. A step has {elements:.3g} M parameters in {tensors} tensors, one chunk of
  2^20 elements each, gradients are normal random numbers. Bytes are the interfaces' own counts, with every header,
  acknowledgement and heartbeat. All nodes share this machine's cores. All averages were compared: bit-identical on all ranks. The
  daemon's own CPU time and its job's memory (slabs, results, state; of the sharded plan's `down` only owned chunks are ever
  written, the others are counted and take none) are from its status.
- **Simulated.** The daemon's own job machines (`exchange/`), one for each node, with everything that they say to each other, under a clock
  that only they move. A link has a rate and a latency; frames leave one after the other, control frames first. Codecs are numbers: bytes
  and speeds that `gradsieve codecs explain` finds on this machine. `gradsieve-simulate --help` lists what can be chosen.
- *Payloads*: bytes sent by a node over bytes of one payload. *Wire ratio*: what a ring all-reduce of fp32 sends, 2 (N - 1) / N of 4 B a
  parameter, over what a node sends. *Kept*: payload bytes that a node holds at a time, for peers that may still ask for them.
"""


def ring_bytes(nodes, elements):
    return 2 * (nodes - 1) / nodes * 4 * elements


def markdown(rows):
    head, *body = rows
    lines = ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in body])


def percent(found, foreseen):
    return f"{100 * (found / foreseen - 1):+.1f} %"


def quantile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def real_table(rows):
    table = [["plan", "nodes", "kB a node", "simulated", "", "payloads", "wire ratio", "ms a step: median, p10 to p90", "simulated", "",
              "daemon's core-s for 10 Gbit of gradient", "its memory, B a parameter"]]
    for row in rows:
        sent, simulated = statistics.mean(row["sent"]), row["simulated"]
        median = statistics.median(row["step_ms"])
        table.append([row["plan"], str(row["nodes"]), f"{sent / 1e3:,.1f}", f"{simulated['sent_mean'] / 1e3:,.1f}",
                      percent(sent, simulated["sent_mean"]), f"{sent / simulated['payload_bytes']:.2f}",
                      f"{ring_bytes(row['nodes'], row['elements']) / sent:.0f}",
                      f"{median:,.0f}, {quantile(row['step_ms'], 0.1):,.0f} to {quantile(row['step_ms'], 0.9):,.0f}",
                      f"{simulated['step_ms']:,.0f}", percent(median, simulated["step_ms"]), f"{cores(row):.2f}",
                      f"{statistics.mean(row['memory']) / row['elements']:.2f}"])
    return table


def cores(row):
    """CPU seconds of a daemon for GRADIENT_BITS that its ranks hand in."""
    return statistics.mean(row["cpu_s"]) / (32 * row["elements"] / GRADIENT_BITS)


def aims(rows):
    """Sentences on the sharded plan's aims, from what was measured; empty without such rows."""
    sharded = [row for row in rows if row["plan"] == "sharded"]
    if len(sharded) < 2:
        return []
    payloads = max(statistics.mean(row["sent"]) / row["simulated"]["payload_bytes"] for row in sharded)
    ratios = [ring_bytes(row["nodes"], row["elements"]) / statistics.mean(row["sent"]) for row in sharded]
    loss = 1 - ratios[-1] / ratios[0]
    first, last = sharded[0]["nodes"], sharded[-1]["nodes"]
    return [f"By the sharded plan a node sent at most {payloads:.2f} of its payloads; the aim is {PAYLOADS_MAX}: "
            f"{'kept' if payloads <= PAYLOADS_MAX else 'missed'}. From {first} to {last} nodes the wire ratio went from {ratios[0]:.0f} to "
            f"{ratios[-1]:.0f}, a change of {-100 * loss:+.1f} %; the aim is {-100 * RATIO_LOSS_MAX:.0f} % or better: "
            f"{'kept' if loss <= RATIO_LOSS_MAX else 'missed'}.",
            f"A daemon took {cores(rows[0]):.2f} core-s for 10 Gbit of its rank's gradient with {rows[0]['nodes']} nodes; the aim is a core for 10 Gbit/s: "
            f"{'kept' if cores(rows[0]) <= 1 else 'missed'}. With more nodes it has more payloads to decode."]


def simulated_table(rows):
    table = [["plan", "nodes", "MB a node", "node with most", "payloads", "wire ratio", "messages a node", "ms a step", "by `gradsieve plan`'s arithmetic",
              "kept MB"]]
    for row in rows:
        table.append([row["plan"], f"{row['nodes']:.0f}", f"{row['sent_mean'] / 1e6:,.2f}", f"{row['sent_most'] / 1e6:,.2f}",
                      f"{row['sent_mean'] / row['payload_bytes']:,.2f}", f"{ring_bytes(row['nodes'], row['elements']) / row['sent_mean']:,.1f}",
                      f"{row['messages']:,.0f}", f"{row['step_ms']:,.1f}", f"{row['planned_ms']:,.1f}", f"{row['kept_bytes'] / 1e6:,.1f}"])
    return table


def fault_table(rows, model):
    """Beside the same without a fault."""
    plain = {(row["plan"], row["nodes"]): row for row in rows if row["model"] == model and not row["fault"]}
    table = [["fault", "plan", "nodes", "ms a step: median", "longest", "without", "MB a node", "without"]]
    for row in rows:
        if row["model"] != model or not row["fault"]:
            continue
        beside = plain.get((row["plan"], row["nodes"]))
        if beside:
            table.append([row["fault"], row["plan"], f"{row['nodes']:.0f}", f"{row['step_ms']:,.1f}", f"{row['longest_ms']:,.1f}",
                          f"{beside['step_ms']:,.1f}", f"{row['sent_mean'] / 1e6:,.2f}", f"{beside['sent_mean'] / 1e6:,.2f}"])
    return table


def csv_rows(kept):
    for row in kept["real"]:
        sent = statistics.mean(row["sent"])
        yield {"kind": "measured", "model": f"{row['elements']:.0f}", "fault": "", "plan": row["plan"], "nodes": row["nodes"],
               "payload_bytes": round(row["simulated"]["payload_bytes"]), "sent_mean": round(sent), "sent_most": round(max(row["sent"])),
               "step_ms": round(statistics.median(row["step_ms"]), 3), "longest_ms": round(max(row["step_ms"]), 3),
               "wire_ratio": round(ring_bytes(row["nodes"], row["elements"]) / sent, 2)}
    for row in kept["simulated"] + [{**row["simulated"], "model": f"{row['elements']:.0f}", "fault": "", "elements": row["elements"]}
                                    for row in kept["real"]]:
        yield {"kind": "simulated", "model": row["model"], "fault": row["fault"], "plan": row["plan"], "nodes": round(row["nodes"]),
               **{key: round(row[key]) for key in ("payload_bytes", "sent_mean", "sent_most", "kept_bytes")},
               **{key: round(row[key], 3) for key in ("messages", "step_ms", "longest_ms", "planned_ms")},
               "wire_ratio": round(ring_bytes(row["nodes"], row["elements"]) / row["sent_mean"], 2)}


def wrapped(text):
    return textwrap.fill(text, WIDTH, break_long_words=False, break_on_hyphens=False)


def page_text(kept, settings):
    """The whole page. settings: of main (rates and models), as a mapping."""
    machine = kept["machine"]
    weak = []
    if machine["load"] > BUSY_LOAD or kept["load_at_end"] > BUSY_LOAD + 2 * machine["cores"]:
        weak.append(f"other programs used the machine: a load of {machine['load']:.1f} when it began")
    if kept["quick"]:
        weak.append("the quick form: small tensors and few nodes")
    real, simulated = kept["real"], kept["simulated"]
    described = f"{machine['cpu']}, {machine['cores']} cores, Linux {machine['kernel']}, {kept['began']}, commit {machine['commit']}."
    text = HEAD.format(
        machine=wrapped(described), doubts="\n" + wrapped(f"**Read with care:** {'; '.join(weak)}.") + "\n" if weak else "",
        codec=kept["codec"], most=max(round(row["nodes"]) for row in simulated), most_real=max((row["nodes"] for row in real), default=0),
        rate=settings["rate"] / 1e6, tensors=settings["tensors"], elements=settings["elements"] / 1e6)
    if real:
        text += f"\n## Measured, and simulated for the same\n\n{markdown(real_table(real))}\n"
        for sentence in aims(real):
            text += "\n" + wrapped(sentence) + "\n"
    many = settings["many"]
    for model in dict.fromkeys(row["model"] for row in simulated):
        rows = [row for row in simulated if row["model"] == model and not row["fault"]]
        tensors = settings["models"][model]["tensors"]
        text += (f"\n## Simulated: {model} parameters\n\n" +
                 wrapped(f"{tensors} tensors, {many['rate'] / 1e9:g} Gbit/s and {many['latency_us']:g} us, {many['step_ms']:g} ms of computing a step, "
                         f"gradients during its last {many['step_ms'] * many['backward']:.0f} ms, {many['cores']} cores of each node code.") +
                 f"\n\n{markdown(simulated_table(rows))}\n")
        faults = fault_table(simulated, model)
        if len(faults) > 1:
            text += ("\n*straggler*: in each step one node, each time another one, computes "
                     f"{settings['faults']['straggler']['straggler_ms']} ms longer. *broken*: at one frame in "
                     f"{1 / settings['faults']['broken']['breaks']:,.0f} the connection\nof two nodes breaks, what is on the way between them is lost, "
                     f"and they are joined again after 200 ms.\n\n{markdown(faults)}\n")
    text += "\n" + TAIL
    return text


TAIL = """\
## Reading it

- By gather, bytes and kept payloads grow with the number of nodes. By the sharded plan they stay, until there are more nodes than chunks of
  2^20 elements: then some nodes own none, an owner sends its average to ever more of them, and the *node with most* grows.
- Messages of the sharded plan grow with nodes and tensors: each node sends each tensor's part to its owners, and a mark to all others.

What it does not show: a switch that is busy itself, TCP's own retransmissions, daemons that run out of CPU time before the link does
other than here.

Again: `./dev bench scaling --publish`, as root, half an hour on two cores; `--simulate-only` without root; `--quick` tries it out.
"""


def write_report(folder, publish, say):
    """page, CSV and picture in `folder`; with `publish` in docs/, too."""
    from . import main as settings
    kept = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    page = page_text(kept, {"rate": settings.REAL_RATE, "tensors": settings.REAL_TENSORS, "elements": settings.REAL_TENSORS * settings.CHUNK,
                            "many": settings.MANY, "models": settings.MODELS, "faults": settings.FAULTS})
    (folder / "scaling.md").write_text(page, encoding="utf-8")
    with open(folder / "scaling.csv", "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(csv_rows(kept))
    drawn = subprocess.run([sys.executable, Path(__file__).with_name("picture.py"), folder / "scaling.csv", folder / "scaling.png"],
                           capture_output=True, text=True)
    if drawn.returncode:
        say(f"no picture: {drawn.stderr.strip().splitlines()[-1]} (apt install python3-matplotlib)")
    if publish:
        docs = SOURCE / "docs"
        shutil.copy(folder / "scaling.md", docs / "scaling.md")
        for name in ("scaling.csv", "scaling.png"):
            if (folder / name).exists():
                shutil.copy(folder / name, docs / "figures" / name)
    say(f"-- {'docs/scaling.md' if publish else folder / 'scaling.md'}")
