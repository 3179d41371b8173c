#!/usr/bin/env python3
"""From the rows that `./dev survive` measured (CSV, a file for each group of faults) to docs/survival.md and one CSV beside it. Figures
are never edited: what the page says is what the rows say. page.py FOLDER_OF_ROWS PAGE CSV"""
import csv
import os
import platform
import sys
import textwrap
from pathlib import Path

WIDTH = 138
GROUPS = ("kills", "freezes", "blackhole", "saturated", "rounds")
WHOLE = {"kills": 1000, "freezes": 100, "blackhole": 10, "rounds": 10_000}  # of one row, in the whole form
BREACH_MAX = 600  # characters; all of it is in the CSV
BUSY_LOAD = 1.5  # running processes: what the command itself keeps busy on two cores

HEAD = """\
# What survives

Written by `./dev survive --publish`; do not edit. Processes are killed and frozen, routes dropped and codecs run for thousands of rounds,
on real daemons and training processes of one machine; each row says what was promised and what was seen. Rows in which a promise was
broken are in the table like the others.

{machine}
{doubts}
{table}
{breaches}
*Seen after*: from the signal, or the route's change, until the last of those who are to know it has said so, median and longest.
*Steps lost*: averages that reached no rank, or that have other bits than in a run without faults. *Mass lost*: see below.
*Overdue*: calls of training processes (`start`, `wait`, `detach`) that came back more than 250 ms after their deadline.

## How it is done

- **Kills.** Runs of four ranks on two nodes, two groups of tensors, three codecs in turn (`topk`, `variance`, `momentum` before `topk`). A
  seeded random number chooses who dies (one daemon, both, a rank, or several at once) and when: within the steps that follow, at a
  moment of up to 6 ms within a step, or, one time in three, up to 200 ms after the last kill, while its victims still come back.
  What is killed is started again at once; a stand-in for the service manager keeps the parked descriptors, as systemd does. Every call
  has a deadline of 10 s. Times are taken of kills that were alone, and what was killed is started again after that; a peer is held to name a daemon that it
  called up.
- **Nothing lost.** After the last step every node keeps its state on disk. Each average, and the digests of all kept states, must be those of
  an undisturbed run of the same job, bit for bit. Besides, for `topk`, sums are compared in double precision: all gradients
  that were handed in, averaged over the ranks, less all averages that came back, less the weighted residuals that are kept. What is left
  over, of the magnitude of what was handed in, is the *mass lost*; rounding of float32 is about 1e-8.
- **Nothing left.** When all ranks have left, a daemon must have no more descriptors and mapped memfds than before its first job, and nothing
  parked. Then it is killed once more. `/dev/shm`, the folder of socket and status page, and the list of processes must have nothing more
  than before, but socket and status page. The folder is looked at after every kill of a daemon, too.
- **Freezes.** SIGSTOP to a daemon or a rank at a random moment of a step, several runs side by side, with the heartbeats (1 s) and times
  of the built-in configuration; SIGCONT once it is named. No step may fail.
- **Blackhole routes.** The two nodes in network namespaces; `ip route add blackhole` on both, or on one: then the node that hears nothing
  has silence at once, the other up to a heartbeat later, and names it as silent, or as closed where the first one's side has ended the connection.
- **A busy link.** Two network namespaces whose link `tc tbf` limits to 100 Mbit/s, one rank in each, 107 kB a round each way. The daemons
  may name nobody: bytes that wait for the link are no silence.
- **Rounds.** One rank on each of two nodes, 4,940 parameters in five tensors, two gradients a step. The digests of all results must be equal
  on both. A stage that `gradsieve codecs` knows and that is in none of these codecs is a broken promise.

What it does not show: nodes on several machines, power that really goes, GPUs. What a real systemd has to do with it, `./dev system-test`
checks. If the daemons of all nodes die between a step's commit and the answer to its ranks, a matter of microseconds, no rank has that
average ([decisions](decisions/0007-kept-state.md)): a kill that met it would be among the steps lost.

Again: `./dev survive --publish`, as root (for the namespaces). `--quick` tries it out in half a minute, `--only GROUP` (kills, freezes,
blackhole, saturated, rounds) measures one part anew; the page then has the other parts' last figures.
"""


def rows_of(path):
    if not path.exists():
        return []
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def read_rows(folder, table=None):
    """All rows, in the order of GROUPS. Those of groups that were not run here are `table`'s, from an earlier run, or missing."""
    earlier = rows_of(table) if table else []
    return [row for group in GROUPS for row in rows_of(folder / f"{group}.csv") or [row for row in earlier if row["group"] == group]]


def wrapped(text, indent=""):
    return textwrap.fill(text, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def markdown(rows):
    cells = [[cell.replace("|", "\\|") for cell in row] for row in rows]
    lines = ["| " + " | ".join(row) + " |" for row in cells]
    return "\n".join([lines[0], "|" + " --- |" * len(cells[0]), *lines[1:]])


def count_text(text):
    return f"{int(text):,}" if text else ""


def is_codec(row):
    return row["group"] == "rounds" and row["injected"] != "0"


def seen_text(row):
    if not row["detection_median_ms"]:
        return ""
    median, longest = float(row["detection_median_ms"]), float(row["detection_longest_ms"])
    return f"{median:,.0f} ms, {longest:,.0f} ms ({row['detections']})"


def fault_table(rows):
    head = ["fault", "times", "promised", "seen after: median, longest (of)", "steps lost", "mass lost", "overdue", "left behind", ""]
    lines = [head]
    codecs = [row for row in rows if is_codec(row)]
    for row in rows:
        if is_codec(row):
            continue
        lost = f"{count_text(row['steps_lost'])} of {count_text(row['steps'])}" if row["steps_lost"] else ""
        times = "" if row["injected"] == "0" else count_text(row["injected"])
        lines.append([row["fault"], times, row["promised"], seen_text(row), lost, row["mass_lost"], row["waits_overdue"], row["residue"],
                      verdict(row)])
    if codecs:
        broken = sum(bool(row["breaches"]) for row in codecs)
        counts = sorted({int(row["injected"]) for row in codecs})
        lines.insert(-1, [f"none: {counts[0]:,} rounds of each of {len(codecs)} codecs", count_text(str(sum(int(row["injected"]) for row in codecs))),
                          "equal digests on all nodes", "", f"{broken} codecs" if broken else "0", "", "", "", "**broken**" if broken else "kept"])
    return markdown(lines)


def verdict(row):
    if row["note"].startswith("not done"):
        return row["note"]
    return "**broken**" if row["breaches"] else "kept"


def codec_table(rows):
    lines = [["codec", "rounds", "digests", "median step"]]
    for row in rows:
        if is_codec(row):
            lines.append([f"`{row['fault']}`", count_text(row["injected"]), "differ" if row["breaches"] else "equal",
                          row["note"].replace("median step ", "")])
    return markdown(lines)


def first_match(path, prefix):
    return next((line.partition(":")[2].strip() for line in Path(path).read_text().splitlines() if line.startswith(prefix)), "unknown")


def machine_text(rows):
    parts = []
    for group in GROUPS:
        first = next((row for row in rows if row["group"] == group), None)
        if first:
            parts.append(f"{group} in {max(1, round(float(first['minutes'])))} min until {first['ended']} UTC (commit {first['commit']}, seed {first['seed']})")
    return f"{first_match('/proc/cpuinfo', 'model name')}, {os.cpu_count()} cores, Linux {platform.release()}; " + "; ".join(parts) + "."


def doubts(rows):
    found = [f"{group} were not run" for group in GROUPS if not any(row["group"] == group for row in rows)]
    for group in GROUPS:
        counts = [int(row["injected"]) for row in rows if row["group"] == group and row["injected"] != "0"]
        count = max(counts, default=0)
        if counts and count < WHOLE[group]:
            found.append(f"{count:,} {group} instead of the {WHOLE[group]:,} of the whole form")
    loads = [float(row["load"]) for row in rows if float(row["load"]) > BUSY_LOAD]
    if loads:
        found.append(f"other programs used the machine: up to {max(loads):.0f} processes were running or waiting when a part ended, so that "
                     "times are longer than alone")
    return found


def page_text(rows):
    weak = doubts(rows)
    breaches = [f"- {row['fault']}: {textwrap.shorten(row['breaches'], BREACH_MAX, placeholder=' ...')}." for row in rows if row["breaches"]]
    notes = [f"- {row['fault']}: {row['note']}." for row in rows if row["note"] and not is_codec(row) and not row["note"].startswith("not done")]
    broken = "\nWhat broke a promise:\n\n" + "\n".join(wrapped(line, "  ") for line in breaches) + "\n" if breaches else ""
    text = HEAD.format(machine=wrapped(machine_text(rows)), doubts=f"\n{wrapped('**Read with care:** ' + '; '.join(weak) + '.')}\n" if weak else "",
                       table=fault_table(rows), breaches=broken)
    if notes:
        text += "\n## More of what was seen\n\n" + "\n".join(wrapped(line, "  ") for line in notes) + "\n"
    if any(is_codec(row) for row in rows):
        text += f"\n## Rounds\n\n{codec_table(rows)}\n"
    return text


def main():
    folder, page, table = map(Path, sys.argv[1:4])
    rows = read_rows(folder, table)
    if not rows:
        sys.exit(f"survive: no rows in {folder}: allowed is a folder in which `./dev survive` has run; run it without --report")
    with open(table, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, rows[0].keys(), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    page.write_text(page_text(rows), encoding="utf-8")
    print(f"written: {page}, {table}")


if __name__ == "__main__":
    main()
