"""Medians, paired ratios and what may be said of them. Pure functions; nothing is assumed of how times are distributed."""
import math
import statistics

LEVEL = 0.95
FASTER, SLOWER, UNDECIDED = "faster", "slower", "undecided"


def spread(values):
    """10th percentile, median and 90th percentile, interpolated; of one value, that value."""
    if len(values) == 1:
        return values[0], values[0], values[0]
    tenths = statistics.quantiles(values, n=10, method="inclusive")
    return tenths[0], statistics.median(values), tenths[8]


def median_interval(values, level=LEVEL):
    """Bounds between which the median lies with a probability of at least `level`, whatever the distribution (order statistics: the
    number of values below it is binomial); None where there are too few values for that (6 are enough at 95 %)."""
    count, below = len(values), 0.0
    ordered = sorted(values)
    rank = 0  # values that are left out at each end
    while rank < count:
        below += math.comb(count, rank) / 2**count
        if below > (1 - level) / 2:
            break
        rank += 1
    return (ordered[rank - 1], ordered[count - rank]) if rank else None


def paired_ratios(times, others):
    """{round: seconds} of two ways: how many times as long the others took, in each round that both took part in."""
    return [others[turn] / times[turn] for turn in sorted(times.keys() & others.keys())]


def verdict(interval, limit=1.0):
    """Whether an interval of ratios lies above `limit` (faster), below it (slower), or allows neither to be said."""
    if interval is None or interval[0] <= limit <= interval[1]:
        return UNDECIDED
    return FASTER if interval[0] > limit else SLOWER
