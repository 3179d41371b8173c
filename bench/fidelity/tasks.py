"""The tasks by name, with what their runs have in common: batches, steps, rates. Plain values."""
from dataclasses import dataclass

from .images import Images
from .text import Text
from .words import Words

CLASSES = {made.name: made for made in (Images, Text, Words)}


@dataclass(frozen=True)
class Course:
    """Of the runs of a task in one size."""

    batch: int  # samples of a node and step
    steps: int
    rates: dict[str, float]  # peak rate, by optimizer


COURSES = {
    ("images", "full"): Course(64, 800, {"sgd": 0.05, "adam": 0.001}),
    ("images", "quick"): Course(32, 200, {"sgd": 0.05, "adam": 0.002}),
    ("text", "full"): Course(16, 800, {"sgd": 0.3, "adam": 0.003}),
    ("text", "quick"): Course(16, 200, {"sgd": 0.3, "adam": 0.005}),
    ("words", "full"): Course(128, 800, {"sgd": 12.0, "adam": 0.003}),
    ("words", "quick"): Course(128, 300, {"sgd": 12.0, "adam": 0.01}),
}
