# SPDX-License-Identifier: GPL-2.0-or-later
"""What a sweep is to compute: points of parameters, seeds, and when a point has been repeated often enough."""

from __future__ import annotations

import difflib
import hashlib
import json
import math
import numbers
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Union

from ._error import Error, refuse

Point = dict[str, Any]
"""A value for each parameter."""
Spread = Union[tuple[float, float], tuple[float, float, str], Sequence[Any]]
POINTS_MAX = 1_000_000
SEEDS_MAX = 1_000_000
# Up to here every whole number is a double of its own.
WHOLE_MAX = 1 << 53


def did_you_mean(word: str, allowed: Iterable[str]) -> str | None:
    """A hint that names what is alike."""
    near = difflib.get_close_matches(word, list(allowed), n=1)
    return f"did you mean `{near[0]}`?" if near else None


def canonical(value: Any, what: str) -> Any:
    """A parameter's value in the one form that it has in hashes, in files and in the call.

    >>> canonical({"b": 10.0, "a": (1, 0.1)}, "x")
    {'b': 10, 'a': [1, 0.1]}
    """
    if value is None or isinstance(value, (bool, str)):
        return str(value) if isinstance(value, str) else value
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, numbers.Real):
        number = float(value)
        if not math.isfinite(number):
            refuse(f"{what} is {number}", "only numbers that are finite can be a parameter")
        return int(number) if number.is_integer() and abs(number) < WHOLE_MAX else number
    # The numbers of numpy that are none of the above: its booleans.
    item = getattr(value, "item", None)
    if callable(item) and getattr(value, "shape", None) == ():
        return canonical(item(), what)
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                refuse(f"{what} has the key {key!r}", "keys are texts")
        return {key: canonical(part, what) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [canonical(part, what) for part in value]
    kind = type(value).__name__
    raise Error(f"{what} is {value!r:.60}, of type {kind}", hint="numbers, texts, lists and mappings can be parameters")


def canonical_json(value: Any) -> str:
    """One text for equal values, whatever the order of their keys."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def hash_of(value: Any) -> str:
    """SHA-256 of a value that JSON can hold."""
    return hashlib.sha256(canonical_json(value).encode("ascii")).hexdigest()


@dataclass(frozen=True)
class LatinHypercube:
    """Points spread evenly over ranges: each range is cut into as many parts as there are points; each part has one.

    Parameters
    ----------
    ranges : dict
        For each parameter: ``(low, high)``; ``(low, high, "log")`` for equal steps of its logarithm; or a list of
        values, which are taken equally often.
    count : int
        Number of points.
    seed : int
        Seed of their choice: the same seed gives the same points, everywhere.

    Examples
    --------
    >>> import windtunnel as wt
    >>> for point in wt.LatinHypercube({"loss": (0, 0.04), "cc": ["reno", "bbr"]}, count=4).points():
    ...     print(f"{point['loss']:.3f}", point["cc"])
    0.032 bbr
    0.029 reno
    0.016 reno
    0.003 bbr
    """

    ranges: Mapping[str, Spread]
    count: int
    seed: int = 1

    def points(self) -> list[Point]:
        """The points, in the order in which they were drawn."""
        if not isinstance(self.count, int) or not 1 <= self.count <= POINTS_MAX:
            refuse(f"a Latin hypercube of {self.count!r} points is not allowed; allowed: 1 to {POINTS_MAX}")
        columns = {str(name): self._column(str(name), spread) for name, spread in self.ranges.items()}
        if not columns:
            refuse("the Latin hypercube has no parameters", 'name some: LatinHypercube({"loss": (0, 0.05)}, count=20)')
        return [{name: column[number] for name, column in columns.items()} for number in range(self.count)]

    def _column(self, name: str, spread: Spread) -> list[Any]:
        # Of its own, so that a further parameter leaves the others as they are.
        source = random.Random(f"windtunnel {self.seed} {name}")
        # Not random.shuffle and not random.choice: only random() is promised to stay the same.
        parts = list(range(self.count))
        for last in range(self.count - 1, 0, -1):
            other = int(source.random() * (last + 1))
            parts[last], parts[other] = parts[other], parts[last]
        at = [(part + source.random()) / self.count for part in parts]
        if not isinstance(spread, tuple):
            values = list(spread)
            if not values:
                refuse(f"parameter `{name}` has no values")
            return [values[int(share * len(values))] for share in at]
        scale = spread[2] if len(spread) == 3 else "linear"
        ok = len(spread) in (2, 3) and scale in ("linear", "log") and all(_is_number(end) for end in spread[:2])
        if not ok or not spread[0] < spread[1]:
            refuse(
                f"the range {spread!r} of `{name}` is not allowed; "
                'allowed: (low, high) or (low, high, "log") with low < high, or a list of values'
            )
        low, high = float(spread[0]), float(spread[1])
        if scale == "linear":
            return [low + share * (high - low) for share in at]
        if low <= 0:
            refuse(f'the range {spread!r} of `{name}` begins at {low:g}: a "log" range is above 0')
        return [low * (high / low) ** share for share in at]


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


@dataclass(frozen=True)
class Interval:
    """When a point has been repeated often enough: its 95 % interval is narrow.

    The seeds are looked at in their order, so how many count depends on neither workers nor on what is done first.

    Parameters
    ----------
    value : str
        The measured value whose mean's interval it is.
    relative : float, optional
        Largest half width, as a part of the mean.
    absolute : float, optional
        Largest half width. One of the two is given.
    least, most : int
        Repetitions at least and at most; `most` of them without a narrow interval are a warning.
    step : int
        How many more repetitions are made at a time: with few points, as many as there are workers keep all busy.
    """

    value: str
    relative: float | None = None
    absolute: float | None = None
    least: int = 3
    most: int = 100
    step: int = 1

    def __post_init__(self) -> None:
        width = self.relative if self.absolute is None else self.absolute
        if (self.relative is None) == (self.absolute is None) or not _is_number(width) or not width or width <= 0:
            refuse(
                "an interval needs a width above 0, relative or absolute",
                'as in Interval("goodput_bps", relative=0.05)',
            )
        for name in ("least", "most", "step"):
            if not isinstance(getattr(self, name), int) or isinstance(getattr(self, name), bool):
                refuse(f"`{name}` is {getattr(self, name)!r}; allowed: a whole number")
        if not (2 <= self.least <= self.most <= SEEDS_MAX and self.step >= 1):
            refuse(
                f"least={self.least}, most={self.most}, step={self.step} is not allowed; "
                f"allowed: 2 <= least <= most <= {SEEDS_MAX}, step >= 1"
            )

    def is_narrow(self, mean: float, half_width: float) -> bool:
        """Whether that is enough."""
        if self.absolute is not None:
            return half_width <= self.absolute
        return half_width <= (self.relative or 0.0) * abs(mean)

    def next_count(self, count: int) -> int:
        """How many repetitions there are after another step."""
        return min(self.most, max(self.least, count + self.step))


Parameters = Union[Mapping[str, Any], Iterable[Mapping[str, Any]], LatinHypercube]


def points_of(parameters: Parameters) -> list[Point]:
    """The points of a grid (a mapping to lists), a list of points, or a Latin hypercube.

    >>> points_of({"loss": [0, 0.01], "cc": ["reno"]})
    [{'loss': 0, 'cc': 'reno'}, {'loss': 0.01, 'cc': 'reno'}]
    """
    if isinstance(parameters, LatinHypercube):
        points: list[Point] = parameters.points()
    elif isinstance(parameters, Mapping):
        points = _grid(parameters)
    elif isinstance(parameters, Iterable) and not isinstance(parameters, (str, bytes)):
        points = []
        for point in parameters:
            if not isinstance(point, Mapping):
                refuse(f"{point!r:.60} is not a point of a sweep", 'a point is a mapping: {"loss": 0.01, "cc": "bbr"}')
            points.append({str(name): value for name, value in point.items()})
    else:
        refuse(f"parameters are a mapping, a list of mappings, or a LatinHypercube, not {parameters!r:.60}")
    points = [{name: canonical(value, f"parameter `{name}`") for name, value in point.items()} for point in points]
    if not points:
        refuse("the sweep has no points", 'give each parameter values: {"loss": [0, 0.01]}')
    names = set(points[0])
    for point in points:
        if set(point) != names:
            odd = ", ".join(f"`{name}`" for name in sorted(names ^ set(point)))
            refuse(f"not every point has the parameter {odd}", "give all points the same parameters")
    seen: set[str] = set()
    for point in points:
        text = canonical_json(point)
        if text in seen:
            refuse(f"the point {text} is there twice", "leave one out; `seeds` are for repetitions")
        seen.add(text)
    return points


def _grid(parameters: Mapping[str, Any]) -> list[Point]:
    columns: dict[str, list[Any]] = {}
    count = 1
    for name, values in parameters.items():
        if isinstance(values, (str, bytes, Mapping)) or not isinstance(values, Iterable):
            refuse(f"parameter `{name}` is {values!r:.60}", f"give it a list of values: {{{name!r}: [{values!r:.40}]}}")
        columns[str(name)] = list(values)
        if not columns[str(name)]:
            refuse(f"parameter `{name}` has no values")
        count *= len(columns[str(name)])
        if count > POINTS_MAX:
            refuse(f"the grid has more than {POINTS_MAX} points", "a LatinHypercube has as many as you say")
    points: list[Point] = [{}]
    for name, values in columns.items():
        points = [{**point, name: value} for point in points for value in values]
    return points


def seeds_of(seeds: Iterable[int]) -> list[int]:
    """The seeds, checked."""
    if isinstance(seeds, (int, float, str, bytes)) or not isinstance(seeds, Iterable):
        refuse(f"seeds are {seeds!r:.60}; allowed: a range or list of whole numbers", "as in seeds=range(1, 7)")
    found: list[int] = []
    for seed in seeds:
        if not isinstance(seed, numbers.Integral) or isinstance(seed, bool) or not 0 <= seed < 1 << 64:
            refuse(f"{seed!r:.60} is not a seed; allowed: whole numbers from 0 to 2^64 - 1")
        found.append(int(seed))
        if len(found) > SEEDS_MAX:
            refuse(f"there are more than {SEEDS_MAX} seeds")
    if not found:
        refuse("there are no seeds", "as in seeds=range(1, 7)")
    known: set[int] = set()
    for seed in found:
        if seed in known:
            refuse(f"the seed {seed} is there twice")
        known.add(seed)
    return found
