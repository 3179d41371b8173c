"""From raw.csv and run.json: the tables on the terminal, summary.csv, the picture, and docs/slow-link.md. Figures are never edited:
what the page says of them is computed."""
import csv
import importlib.util
import shutil
import subprocess
import sys
from dataclasses import dataclass

from .catalog import COPY, FRAMEWORK, GLOO, IN_PLACE, METHODS, MODES, OUR_DEFAULT, OURS, PEERS, POWER_SGD
from lab.processes import SOURCE
from .link import RATES
from .paired import FASTER, SLOWER, UNDECIDED, median_interval, paired_ratios, spread, verdict
from .plan import WITHIN
from .results import read_conditions, read_raw

PAGE = SOURCE / "docs" / "slow-link.md"
FIGURES = SOURCE / "docs" / "figures"
SLOW_MESSAGE = 1.15  # of what the rate gives a message: the machine had no time for its link
BUSY_LOAD = 0.5  # running processes beside the bench, at its start
SUMMARY_FIELDS = ("rate", "parameters", "method", "mode", "steps", "median_ms", "p10_ms", "p90_ms", "bytes_per_node", "wire_ms",
                  "below_5_bursts", "gloo_ratio", "gloo_ratio_low", "gloo_ratio_high", "verdict")


@dataclass(frozen=True)
class Aim:
    """What was set out to be reached: the default codec so many times faster than a peer."""

    rate: str
    peer: object
    times: float


AIM_SIZE = 8_396_800
AIMS = (Aim("100M", GLOO, 60), Aim("1G", GLOO, 8), Aim("1G", POWER_SGD[1], 2), Aim("10G", GLOO, 1.5))


FLOOR_AIM_RATE, FLOOR_SHARE, FLOOR_EXTRA_MS = "1G", 1.4, 1.0
STEP_BYTES = 2 * 12  # an element, both nodes: gradient and residual read, residual written; of the average only 1 % is written
COPY_BYTES = 2 * 8  # an element, both ranks: read and written


class Row:
    """One way at one rate, size and mode, beside Gloo's all-reduce in the same rounds."""

    def __init__(self, rate, parameters, name, mode, cells):
        cell = cells[name, mode]
        self.rate, self.parameters, self.name, self.mode = RATES[rate], parameters, name, mode
        self.steps = len(cell.ms)
        self.low, self.median, self.high = spread(list(cell.ms.values()))
        self.bytes = cell.node_bytes
        self.wire_ms = 1000 * self.rate.wire_s(self.bytes)
        self.is_exempt = name != COPY.name and self.rate.is_exempt(self.bytes)
        self.ratio = Ratio(cell, cells[GLOO.name, mode].ms) if name not in (COPY.name, GLOO.name) else None

    def summary(self):
        ratio = self.ratio.fields() if self.ratio else ("", "", "", "")
        return (self.rate.name, self.parameters, self.name, self.mode, self.steps, f"{self.median:.3f}", f"{self.low:.3f}",
                f"{self.high:.3f}", f"{self.bytes:.0f}", f"{self.wire_ms:.3f}", int(self.is_exempt), *ratio)


class Ratio:
    """How many times as long the other one took, in the median of the rounds that both took part in. other_ms: {round: ms}."""

    def __init__(self, cell, other_ms, limit=1.0):
        ratios = paired_ratios(cell.ms, other_ms)
        self.median = spread(ratios)[1] if ratios else None
        self.interval = median_interval(ratios) if ratios else None
        self.verdict = verdict(self.interval, limit)

    @property
    def outcome(self):
        return {FASTER: "reached", SLOWER: "missed"}.get(self.verdict, self.verdict)

    def fields(self):
        low, high = (f"{bound:.4f}" for bound in self.interval) if self.interval else ("", "")
        return (f"{self.median:.4f}" if self.median else "", low, high, self.verdict)

    def text(self):
        if self.median is None:
            return "-"
        bounds = f" [{number(self.interval[0])}, {number(self.interval[1])}]" if self.interval else ""
        return f"{number(self.median)}{bounds}{' ?' if self.verdict == UNDECIDED else ''}"


def number(value):
    """Three digits, with thousands separated."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def size_text(count):
    for unit, scale in (("MB", 1e6), ("kB", 1e3)):
        if count >= scale:
            return f"{number(count / scale)} {unit}"
    return f"{count:.0f} B"


def rows_of(cells, rate, parameters):
    return {(name, mode): Row(rate, parameters, name, mode, cells) for name in METHODS for mode in MODES if (name, mode) in cells
            and (GLOO.name, mode) in cells}


TABLE_HEAD = ("ms a step, median (10 % .. 90 %)", "in place", "with copies", "sent per node", "wire alone", "steps",
              "Gloo's time / its, in place", "with copies")


def table(rows):
    """Both modes of a way in one line."""
    lines = [TABLE_HEAD]
    for name in METHODS:
        placed, framed = rows.get((name, IN_PLACE)), rows.get((name, FRAMEWORK))
        if placed is None or framed is None:
            continue
        line = [name]
        for row in (placed, framed):
            line.append(f"{number(row.median)} ({number(row.low)} .. {number(row.high)})")
        sent = "" if name == COPY.name else size_text(placed.bytes) + (" *" if placed.is_exempt else "")
        line += [sent, number(placed.wire_ms) if sent else "", str(placed.steps)]
        lines.append((*line, *(row.ratio.text() if row.ratio else "" for row in (placed, framed))))
    return lines


def peer_table(cells):
    """The default codec, in plain text, beside each peer."""
    lines = [("its time / gradsieve's", "in place", "", "with copies", "")]
    for peer in PEERS:
        if any((name, mode) not in cells for name in (OUR_DEFAULT.name, peer.name) for mode in MODES):
            continue
        ratios = [Ratio(cells[OUR_DEFAULT.name, mode], cells[peer.name, mode].ms) for mode in MODES]
        lines.append((peer.name, *(text for ratio in ratios for text in (ratio.text().removesuffix(" ?"), ratio.verdict))))
    return lines


def aim_table(raw):
    lines = [("link", "beside", "aim, times faster", "measured, in place", "")]
    for aim in AIMS:
        cells = raw.get((aim.rate, AIM_SIZE), {})
        if (OUR_DEFAULT.name, IN_PLACE) not in cells or (aim.peer.name, IN_PLACE) not in cells:
            continue
        ratio = Ratio(cells[OUR_DEFAULT.name, IN_PLACE], cells[aim.peer.name, IN_PLACE].ms, aim.times)
        lines.append((aim.rate, aim.peer.name, number(aim.times), ratio.text().removesuffix(" ?"), ratio.outcome))
    cells = raw.get((FLOOR_AIM_RATE, AIM_SIZE), {})
    if (OUR_DEFAULT.name, IN_PLACE) in cells and (COPY.name, IN_PLACE) in cells:
        ratio = Ratio(cells[OUR_DEFAULT.name, IN_PLACE], floor_ms(cells))
        lines.append((FLOOR_AIM_RATE, f"{FLOOR_SHARE} x its passes at copy speed + wire + {FLOOR_EXTRA_MS:.0f} ms", number(1.0),
                      ratio.text().removesuffix(" ?"), ratio.outcome))
    return lines


def floor_ms(cells):
    """{round: ms} that a step of the default codec may take: FLOOR_SHARE times its passes over memory, at the speed at which both ranks
    copied in the same round, and the wire."""
    wire_ms = 1000 * RATES[FLOOR_AIM_RATE].wire_s(cells[OUR_DEFAULT.name, IN_PLACE].node_bytes)
    return {turn: FLOOR_SHARE * STEP_BYTES / COPY_BYTES * ms + wire_ms + FLOOR_EXTRA_MS
            for turn, ms in cells[COPY.name, IN_PLACE].ms.items()}


def plan_table(rows, plans):
    """What `gradsieve plan` foresaw beside what was measured in place."""
    lines = [("ms a step", "gradsieve plan", "measured, in place", "off by", "")]
    for name, foreseen_ms in plans.items():
        if (name, IN_PLACE) in rows:
            measured = rows[name, IN_PLACE].median
            off = foreseen_ms / measured - 1
            remark = "" if abs(off) <= WITHIN else f"more than {100 * WITHIN:.0f} %"
            lines.append((name, number(foreseen_ms), number(measured), f"{100 * off:+.0f} %", remark))
    return lines


def losing(rows):
    """Our rows that Gloo's all-reduce beats, and those of which it cannot be said."""
    ours = [row for row in rows.values() if METHODS[row.name].kind == OURS]
    return ([row for row in ours if row.ratio.verdict == SLOWER], [row for row in ours if row.ratio.verdict == UNDECIDED])


def plain_text(lines):
    """Aligned columns for a terminal."""
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    aligned = [[line[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(line[1:], widths[1:]))] for line in lines]
    return "\n".join("  ".join(line).rstrip() for line in aligned)


def markdown(lines):
    rows = [[cell.replace("|", "\\|") for cell in line] for line in lines]
    return "\n".join("| " + " | ".join(row) + " |" for row in [rows[0], ["---"] * len(rows[0]), *rows[1:]])


def describe_machine(conditions):
    machine = conditions["machine"]
    threads = f"{machine['threads']} thread{'s' if machine['threads'] > 1 else ''}"
    return (f"{machine['cpu']}, {machine['cores']} cores, Linux {machine['kernel']}; PyTorch {machine['torch']} with {machine['blas']}, "
            f"{threads} a rank; commit {machine['commit']}; begun {conditions['began']}, {conditions.get('minutes', 0):.0f} minutes")


def doubts(conditions):
    """What makes these figures weaker than those of the full command; empty: nothing."""
    found = []
    if conditions["rounds"] < 100:
        found.append(f"{conditions['rounds']} steps of each way, where the full command takes 100")
    if conditions["slow_every"] > 1:
        found.append(f"ways of more than 1 s a step took part in every {conditions['slow_every']}th round only")
    if conditions["machine"]["load"] > BUSY_LOAD:
        found.append(f"other programs used the machine: {conditions['machine']['load']:.1f} were running or waiting when it began, so that "
                     "what needs processor time took longer than it does alone")
    if conditions["machine"].get("nice", 0):
        found.append(f"it ran with another priority than they did (nice {conditions['machine']['nice']})")
    slowest = max(((ms / wire, key.split()[0]) for key, checks in conditions["checks"].items() for size, ms, wire in checks
                   if not RATES[key.split()[0]].is_exempt(size)), default=(0, ""))
    if slowest[0] > SLOW_MESSAGE:
        found.append(f"single messages took up to {number(slowest[0])} times what the rate gives them ({slowest[1]}bit/s): the machine "
                     "had not the time to carry them")
    return found


def write_summary(raw, path):
    with open(path, "w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(SUMMARY_FIELDS)
        for (rate, parameters), cells in raw.items():
            rows.writerows(row.summary() for row in rows_of(cells, rate, parameters).values())


def write_report(folder, is_published, say):
    """Tables by `say`; summary.csv and slow_link.png into `folder`; with is_published the page too. Errors: OSError, KeyError."""
    raw, conditions = read_raw(folder / "raw.csv"), read_conditions(folder)
    write_summary(raw, folder / "summary.csv")
    say("\n" + describe_machine(conditions))
    for doubt in doubts(conditions):
        say(f"note: {doubt}")
    for (rate, parameters), cells in raw.items():
        rows = rows_of(cells, rate, parameters)
        say(f"\n{parameters:,} parameters at {rate}bit/s (* below 5 bursts: the link's check does not count; ? undecided)\n")
        say(plain_text(table(rows)))
        say("\ngradsieve's default codec, plain text, beside\n" + plain_text(peer_table(cells)))
        plans = conditions.get("plans", {}).get(f"{rate} {parameters}")
        if plans:
            say("\n" + plain_text(plan_table(rows, plans)))
    if len(aim_table(raw)) > 1:
        say(f"\naims, {AIM_SIZE:,} parameters\n" + plain_text(aim_table(raw)))
    picture = folder / "slow_link.png"
    has_picture = importlib.util.find_spec("matplotlib") is not None
    if has_picture:
        subprocess.run([sys.executable, "-m", "slow_link.picture", folder / "summary.csv", picture], check=True, cwd=SOURCE / "bench")
    else:
        say("no picture: python3-matplotlib is not installed")
    say(f"\nresults: {folder}/summary.csv, {folder}/raw.csv" + (f", {picture}" if has_picture else ""))
    if is_published:
        if not has_picture:
            sys.exit("slow-link: the page needs its picture: apt install python3-matplotlib")
        from .page import page_text
        FIGURES.mkdir(exist_ok=True)
        shutil.copy(folder / "summary.csv", FIGURES / "slow_link.csv")
        shutil.copy(picture, FIGURES / "slow_link.png")
        PAGE.write_text(page_text(raw, conditions), encoding="utf-8")
        say(f"page: {PAGE}")
