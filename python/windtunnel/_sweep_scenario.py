# SPDX-License-Identifier: GPL-2.0-or-later
"""Sweeps of a scenario file: a sweep file names it, what is put into it, and what is read from the results."""

from __future__ import annotations

import copy
import csv
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ._error import Error
from ._network import Network
from ._run import Run
from ._sweep import Sweep
from ._sweep_plan import Interval, LatinHypercube, canonical_json, did_you_mean
from ._sweep_store import hash_of_file
from ._yaml import load

VERSION = 1
KEYS = ("version", "name", "scenario", "parameters", "points", "latin", "seeds", "until", "values", "check")
PARAMETER_KEYS = ("set", "to", "as", "range", "scale")
LATIN_KEYS = ("count", "seed")
UNTIL_KEYS = ("value", "relative", "absolute", "least", "most", "step")
# What a value can be read from, and what goes with each.
SOURCES = {
    "stdout": ("find", "times"),
    "stderr": ("find", "times"),
    "summary": ("take", "times"),
    "link": ("column", "take", "times"),
}
TAKES = ("value", "count", "sum", "mean", "min", "max", "last")
_STEP = re.compile(r'(?:^|\.)([A-Za-z0-9_:-]+)|\[([0-9]+)\]|\["([^"]+)"\]')
_SEEDS = re.compile(r"([0-9]+)\s*-\s*([0-9]+)")
_PERCENT = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*%")


def read(path: Path) -> Sweep:
    """The sweep of a file.

    Raises
    ------
    Error
        The file is not as schema/sweep-v1.json has it, or does not fit its scenario.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise Error(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from None
    try:
        return _sweep_of(load(text, str(path)), path)
    except Error as error:
        error.where = error.where or str(path)
        raise


def _sweep_of(spec: Any, path: Path) -> Sweep:
    if not isinstance(spec, dict) or "nodes" in spec or "scenario" not in spec:
        raise Error(
            "this is not a sweep: it names no `scenario`", hint="scenario: FILE.yaml, and `parameters` below it"
        )
    top = _mapping(spec, "the file", KEYS)
    if top.get("version") != VERSION:
        raise Error(f"version `{top.get('version')}` is not allowed; allowed: {VERSION}")
    if not isinstance(top["scenario"], str):
        raise Error("`scenario` is not a path")
    if not isinstance(top.get("check", True), bool):
        raise Error(f"`check` is `{top['check']}`; allowed: true, false")
    declared = {
        name: _mapping(value, f"parameters.{name}", PARAMETER_KEYS)
        for name, value in _mapping(top.get("parameters"), "parameters", None).items()
    }
    places = {name: _places(name, value) for name, value in declared.items()}
    formats = {name: _format(name, value) for name, value in declared.items()}
    values = {name: _value_spec(name, value) for name, value in _mapping(top.get("values"), "values", None).items()}
    if not declared or not values:
        missing = "values" if declared else "parameters"
        raise Error(f"the sweep has no `{missing}`", hint="docs/sweeps.md shows a sweep file")
    run = ScenarioRun(path.parent / top["scenario"], places, formats, values, top.get("check", True))
    plan = Sweep(
        run,
        _parameters(top, declared),
        _seeds(top.get("seeds")),
        until=_until(top.get("until"), values),
        name=str(top.get("name") or path.name.partition(".")[0]),
    )
    # Rather now than in each cell.
    run.network(plan.points[0]).validate()
    return plan


def _mapping(value: Any, what: str, keys: tuple[str, ...] | None) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise Error(f"{what} is not a mapping: {value!r:.60}")
    for key in value:
        if keys is not None and key not in keys:
            hint = did_you_mean(key, keys)
            raise Error(f"{what} has no key `{key}`; allowed: {', '.join(keys)}", hint=hint)
    return value


def _places(name: str, spec: Mapping[str, Any]) -> list[str]:
    places = spec.get("set")
    found = [places] if isinstance(places, str) else places
    if not isinstance(found, list) or not found or not all(isinstance(place, str) for place in found):
        raise Error(f"parameters.{name}.set is `{places}`", hint="name what to set, as in set: links[0].both.loss")
    for place in found:
        steps_of(place)
    return found


def _format(name: str, spec: Mapping[str, Any]) -> str | None:
    form = spec.get("as")
    if form is not None and (not isinstance(form, str) or form.count("{}") != 1):
        raise Error(f"parameters.{name}.as is `{form}`", hint='a text with {} where the value goes, as in as: "{}ms"')
    return form


def steps_of(place: str) -> list[str | int]:
    """The steps of a path into a scenario.

    >>> steps_of('links[0].both.loss'), steps_of('nodes.h1.sysctls["net.ipv4.ip_forward"]')
    (['links', 0, 'both', 'loss'], ['nodes', 'h1', 'sysctls', 'net.ipv4.ip_forward'])
    """
    steps: list[str | int] = []
    at = 0
    while at < len(place):
        found = _STEP.match(place, at)
        if not found or found.end() == at:
            raise Error(
                f"`{place}` is not a path, from `{place[at:]}` on",
                hint='as in links[0].both.loss, nodes.h1.sysctls["net.ipv4.tcp_rmem"]',
            )
        word, index, quoted = found.groups()
        steps.append(int(index) if index else word or quoted)
        at = found.end()
    if not steps:
        raise Error("a path is empty", hint="as in links[0].both.loss")
    return steps


def _parameters(top: Mapping[str, Any], declared: Mapping[str, Mapping[str, Any]]) -> Any:
    ranged = [name for name, spec in declared.items() if "range" in spec]
    listed = [name for name, spec in declared.items() if "to" in spec]
    if "points" in top:
        if "latin" in top or ranged or listed:
            raise Error("`points` go without `latin`, `to` and `range`: each names all its values")
        points = top["points"]
        if not isinstance(points, list):
            raise Error(f"points is not a list: {points!r:.60}")
        for number, point in enumerate(points):
            _mapping(point, f"points[{number}]", tuple(declared))
        return points
    for name, spec in declared.items():
        if ("range" in spec) == ("to" in spec):
            raise Error(
                f"parameters.{name} needs either `to` or `range`", hint="to: [0, 1, 2], or range: [0, 2] with `latin`"
            )
        if "to" in spec and not isinstance(spec["to"], list):
            raise Error(f"parameters.{name}.to is not a list: {spec['to']!r:.60}")
    if "latin" not in top:
        if ranged:
            raise Error(f"parameters.{ranged[0]} has a `range`, and the sweep no `latin`", hint="latin: {count: 20}")
        return {name: spec["to"] for name, spec in declared.items()}
    latin = _mapping(top["latin"], "latin", LATIN_KEYS)
    if "count" not in latin:
        raise Error("latin has no `count`", hint="latin: {count: 20}")
    spreads: dict[str, Any] = {}
    for name, spec in declared.items():
        if "to" in spec:
            spreads[name] = spec["to"]
            continue
        ends = spec["range"] if isinstance(spec["range"], list) else [spec["range"]]
        spreads[name] = (*ends, spec.get("scale", "linear"))
    return LatinHypercube(spreads, latin["count"], latin.get("seed", 1))


def _seeds(seeds: Any) -> Any:
    if isinstance(seeds, str):
        found = _SEEDS.fullmatch(seeds.strip())
        if not found or int(found[1]) > int(found[2]):
            raise Error(f"seeds are `{seeds}`", hint="as in seeds: 1-6, or seeds: [1, 2, 3]")
        return range(int(found[1]), int(found[2]) + 1)
    if isinstance(seeds, int) and not isinstance(seeds, bool):
        raise Error(
            f"seeds are `{seeds}`: is that one seed, or so many?", hint=f"seeds: [{seeds}], or seeds: 1-{seeds}"
        )
    return seeds


def _until(spec: Any, values: Mapping[str, Any]) -> Interval | None:
    if spec is None:
        return None
    until = dict(_mapping(spec, "until", UNTIL_KEYS))
    if until.get("value") not in values:
        hint = did_you_mean(str(until.get("value")), values)
        raise Error(f"until.value is `{until.get('value')}`; allowed: {', '.join(values)}", hint=hint)
    if isinstance(until.get("relative"), str):
        percent = _PERCENT.fullmatch(until["relative"])
        if not percent:
            raise Error(f"until.relative is `{until['relative']}`; allowed: a part of the mean, as in 5% or 0.05")
        until["relative"] = float(percent[1]) / 100
    return Interval(**until)


def _value_spec(name: str, spec: Any) -> dict[str, Any]:
    what = f"values.{name}"
    if not isinstance(spec, dict):
        raise Error(f"{what} is not a mapping: {spec!r:.60}", hint="as in {summary: frames}")
    sources = [key for key in spec if key in SOURCES]
    if len(sources) != 1:
        hint = next((hint for key in spec if key not in SOURCES and (hint := did_you_mean(key, SOURCES))), None)
        raise Error(f"{what} names {len(sources)} of {', '.join(SOURCES)}; one is needed", hint=hint)
    source = sources[0]
    _mapping(spec, what, (source, *SOURCES[source]))
    if not isinstance(spec[source], str):
        raise Error(f"{what}.{source} is `{spec[source]}`: it is a text")
    if spec.get("take", "value") not in TAKES:
        raise Error(
            f"{what}.take is `{spec['take']}`; allowed: {', '.join(TAKES)}", hint=did_you_mean(str(spec["take"]), TAKES)
        )
    if not isinstance(spec.get("times", 1), (int, float)) or isinstance(spec.get("times"), bool):
        raise Error(f"{what}.times is `{spec['times']}`: it is a number")
    if source in ("stdout", "stderr"):
        _check_pattern(what, spec.get("find"))
    elif source == "summary":
        steps_of(spec["summary"])
    elif "column" not in spec:
        raise Error(f"{what} has no `column`", hint="one of links.csv, as in column: throughput_bps")
    return spec


def _check_pattern(what: str, pattern: Any) -> None:
    try:
        groups = re.compile(pattern).groups
    except (re.error, TypeError) as error:
        raise Error(
            f"{what}.find is `{pattern}`: {error}", hint="a regular expression with the number in parentheses"
        ) from None
    if groups != 1:
        raise Error(
            f"{what}.find has {groups} groups; one is needed", hint='the number in parentheses: "([0-9.]+) Mbits/sec"'
        )


class ScenarioRun:
    """Runs a scenario with values put into it, and reads off what was measured."""

    def __init__(
        self,
        scenario: Path,
        places: Mapping[str, list[str]],
        formats: Mapping[str, str | None],
        values: Mapping[str, dict[str, Any]],
        check: bool,
    ) -> None:
        self._scenario = scenario.absolute()
        self._places = dict(places)
        self._formats = dict(formats)
        self._values = dict(values)
        self._check = check
        self._network = Network.from_yaml(self._scenario)

    def _fingerprint(self) -> dict[str, Any]:
        """What it depends on: the scenario and the host files that it names. See :mod:`windtunnel._sweep_code`."""
        return {
            "scenario": self._network.to_dict(),
            "files": _host_files(self._network.to_dict(), self._scenario.parent),
            "places": self._places,
            "formats": self._formats,
            "values": self._values,
            "check": self._check,
        }

    def network(self, parameters: Mapping[str, Any]) -> Network:
        """The scenario with these values."""
        network = copy.deepcopy(self._network)
        for name, value in parameters.items():
            form = self._formats[name]
            # As people write numbers.
            text = form.replace("{}", f"{value}") if form is not None else value
            for place in self._places[name]:
                _put(network._spec, place, text)
        return network

    def __call__(self, seed: int, **parameters: Any) -> dict[str, float | None]:
        with self.network(parameters).run(seed=seed, check=self._check) as run:
            run.to_end()
        return {name: self._measured(run, name, spec) for name, spec in self._values.items()}

    def _measured(self, run: Run, name: str, spec: Mapping[str, Any]) -> float | None:
        if "summary" in spec:
            number = _taken(name, spec, _at(run.summary, spec["summary"], f"values.{name}"))
        elif "link" in spec:
            number = _taken(name, spec, _column(run.out, name, spec), "mean")
        else:
            stream = "stdout" if "stdout" in spec else "stderr"
            node, _, count = spec[stream].partition("/")
            if not re.fullmatch("[0-9]*", count):
                raise Error(
                    f"values.{name}.{stream} is `{spec[stream]}`", hint="NODE, or NODE/1 for its second program"
                )
            text = run.stdout(node, int(count or 0)) if stream == "stdout" else run.stderr(node, int(count or 0))
            found = re.findall(spec["find"], text, re.MULTILINE)
            if not found:
                raise Error(f"values.{name}: `{spec['find']}` is nowhere in the {stream} of {spec[stream]}")
            number = _number(name, found[-1])
        return None if number is None else number * spec.get("times", 1)


def _host_files(spec: Any, folder: Path) -> dict[str, Any]:
    """What the files and folders are that a scenario names: hashes of files; what is in a folder, and since when."""
    found: dict[str, Any] = {}
    if isinstance(spec, dict):
        for key, value in spec.items():
            if key in ("source", "root", "image") and isinstance(value, str) and value not in ("", "/"):
                path = folder / value
                found[value] = _tree(path) if path.is_dir() else hash_of_file(path)
            else:
                found.update(_host_files(value, folder))
    elif isinstance(spec, list):
        for value in spec:
            found.update(_host_files(value, folder))
    return found


def _tree(top: Path) -> list[list[Any]]:
    entries = []
    for folder, _, names in os.walk(top):
        for name in names:
            path = Path(folder) / name
            state = path.lstat()
            entries.append([str(path.relative_to(top)), state.st_size, state.st_mode, state.st_mtime_ns])
    return sorted(entries)


def _put(spec: Any, place: str, value: Any) -> None:
    """Sets a value of a scenario. Mappings that are not there are made; nodes and links are not."""
    steps = steps_of(place)
    here = spec
    for number, step in enumerate(steps):
        is_last = number == len(steps) - 1
        step = _as_index(step, here)
        path = ".".join(map(str, steps[: number + 1]))
        if isinstance(step, int):
            if not isinstance(here, list) or step >= len(here):
                count = f"has {len(here)} entries" if isinstance(here, list) else "is no list"
                raise Error(f"`{place}`: what {path} is in {count}")
        elif not isinstance(here, dict):
            raise Error(f"`{place}`: there is no {path}: what it is in is no mapping")
        elif step not in here and (number == 1 and steps[0] == "nodes"):
            raise Error(f"`{place}`: there is no node `{step}`", hint=did_you_mean(str(step), here))
        if is_last:
            here[step] = copy.deepcopy(value)
            return
        if isinstance(here, dict) and here.get(step) is None:
            here[step] = {}
        here = here[step]


def _as_index(step: str | int, value: Any) -> str | int:
    """`links.0` is `links[0]`, which needs quotes within braces."""
    return int(step) if isinstance(step, str) and step.isdecimal() and isinstance(value, list) else step


def _at(value: Any, place: str, what: str) -> Any:
    for step in steps_of(place):
        try:
            value = value[_as_index(step, value)]
        except (KeyError, IndexError, TypeError):
            known = list(value) if isinstance(value, dict) else []
            allowed = f"; there are {', '.join(known)}" if known else ""
            hint = did_you_mean(str(step), known)
            raise Error(f"{what}: the summary has no `{place}`: no `{step}`{allowed}", hint=hint) from None
    return value


def _column(out: Path, name: str, spec: Mapping[str, Any]) -> list[float]:
    """A column of links.csv, of one direction of a link: `A -> B`, or `A` for the one that leads away from there."""
    try:
        text = (out / "links.csv").read_text(encoding="utf-8")
    except OSError:
        raise Error(f"values.{name}: the run left no links.csv", hint="run: {measure: 100ms} in the scenario") from None
    begin, _, end = (part.strip() for part in spec["link"].partition("->"))
    rows = list(csv.DictReader(text.splitlines()))
    wanted = [row for row in rows if row["from"] == begin and end in ("", row["to"])]
    if not wanted:
        known = sorted({f"{row['from']} -> {row['to']}" for row in rows})
        hint = did_you_mean(spec["link"], known)
        raise Error(f"values.{name}: no link is `{spec['link']}`; there are {', '.join(known[:20])}", hint=hint)
    if spec["column"] not in wanted[0]:
        known = list(wanted[0])
        raise Error(
            f"values.{name}: links.csv has no column `{spec['column']}`; there are {', '.join(known)}",
            hint=did_you_mean(spec["column"], known),
        )
    return [_number(name, row[spec["column"]]) for row in wanted if row[spec["column"]] != ""]


def _taken(name: str, spec: Mapping[str, Any], value: Any, default: str = "value") -> float | None:
    take = spec.get("take", default)
    if take == "value":
        if value is None:
            return None
        return _number(name, value)
    if not isinstance(value, (list, dict)):
        raise Error(f"values.{name}: `take: {take}` goes with a list, not with {canonical_json(value):.60}")
    if take == "count":
        return len(value)
    parts = [_number(name, part) for part in (value.values() if isinstance(value, dict) else value)]
    if take == "sum":
        return sum(parts)
    if not parts:
        return None
    return {"mean": lambda: sum(parts) / len(parts), "min": lambda: min(parts), "max": lambda: max(parts)}.get(
        take, lambda: parts[-1]
    )()


def _number(name: str, value: Any) -> float:
    if isinstance(value, str):
        try:
            return json.loads(value) if re.fullmatch(r"-?[0-9]+", value) else float(value)
        except ValueError:
            pass
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        return value
    raise Error(f"values.{name}: {value!r:.60} is not a number")
