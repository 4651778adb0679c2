# SPDX-License-Identifier: GPL-2.0-or-later
"""Numbers as scenarios have them: with a unit each."""

from __future__ import annotations

import math
import re
from fractions import Fraction
from typing import Union

from ._error import refuse

Time = Union[str, int, float]
"""A span of virtual time: seconds, or a text with its unit: ``"5ms"``."""
Rate = Union[str, int, float]
"""Bits per second, or a text with its unit: ``"10Mbit"``."""
Size = Union[str, int]
"""Bytes, or a text with its unit: ``"64MiB"``."""
Probability = Union[str, int, float]
"""From 0 to 1, or a text with its unit: ``"1%"``."""
Queue = Union[str, int]
"""Packets, or a text: ``"100p"``, ``"64kB"``, ``"nic"``."""

TIME_NS = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9, "min": 60 * 10**9, "h": 3600 * 10**9}
_RATES = {"Tbit": 10**12, "Gbit": 10**9, "Mbit": 10**6, "kbit": 10**3, "bit": 1}
_TIME = re.compile(r"(?P<value>[0-9]+(\.[0-9]+)?)(?P<unit>ns|us|ms|s|min|h)")


def _number(what: str, value: object, allowed: str) -> Fraction:
    """A number that is not negative; exact: 0.1 is a tenth, whatever its binary form."""
    good = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value) and value >= 0
    if not good:
        refuse(f"{what} `{value!r}` is not allowed; allowed: {allowed}")
    return Fraction(str(value))


def _whole(what: str, value: object, scale: int, allowed: str) -> int:
    return round(_number(what, value, allowed) * scale)


def time_ns(value: Time, what: str = "time") -> int:
    """Nanoseconds of a span of time.

    >>> time_ns("1.5ms"), time_ns(0.1)
    (1500000, 100000000)
    """
    allowed = "seconds as a number, or a text with a unit (ns, us, ms, s, min, h), as in `5ms`"
    if isinstance(value, str):
        found = _TIME.fullmatch(value)
        if not found:
            refuse(f"{what} `{value}` is not allowed; allowed: {allowed}")
        return round(Fraction(found["value"]) * TIME_NS[found["unit"]])
    return _whole(what, value, 10**9, allowed)


def _scaled(value: int, units: dict[str, int]) -> str:
    """With the greatest unit of which it is a whole number."""
    unit = next(unit for unit, scale in sorted(units.items(), key=lambda item: -item[1]) if value % scale == 0)
    return f"{value // units[unit]}{unit}"


def time_text(value: Time, what: str = "time") -> str:
    """As a scenario has it.

    >>> time_text(0.005), time_text("5ms"), time_text(0)
    ('5ms', '5ms', '0s')
    """
    if isinstance(value, str):
        return value
    nanoseconds = time_ns(value, what)
    return _scaled(nanoseconds, {unit: TIME_NS[unit] for unit in ("ns", "us", "ms", "s")}) if nanoseconds else "0s"


def rate_text(value: Rate) -> str:
    """As a scenario has it.

    >>> rate_text(10_000_000), rate_text(1e9)
    ('10Mbit', '1Gbit')
    """
    if isinstance(value, str):
        return value
    return _scaled(
        _whole("rate", value, 1, "bits per second as a number, or a text with a unit, as in `10Mbit`"), _RATES
    )


def size_text(value: Size, what: str = "size") -> str:
    """As a scenario has it.

    >>> size_text(64 << 20)
    '64MiB'
    """
    if isinstance(value, str):
        return value
    allowed = "bytes as a whole number, or a text with a unit, as in `64MiB`"
    return _scaled(_whole(what, value, 1, allowed), {"GiB": 1 << 30, "MiB": 1 << 20, "KiB": 1 << 10, "B": 1})


def probability_text(value: Probability, what: str = "probability") -> str:
    """As a scenario has it.

    >>> probability_text(0.01), probability_text("1%"), probability_text(1e-6)
    ('1%', '1%', '1000ppb')
    """
    if isinstance(value, str):
        return value
    allowed = "a number from 0 to 1, or a text with a unit, as in `1%`"
    chance = _number(what, value, allowed)
    if chance > 1:
        refuse(f"{what} `{value}` is not allowed; allowed: {allowed}", "1 % is 0.01")
    parts = round(chance * 10**9)
    return f"{parts // 10**7}%" if parts % 10**7 == 0 else f"{parts}ppb"


def queue_text(value: Queue) -> str:
    """As a scenario has it.

    >>> queue_text(100)
    '100p'
    """
    return value if isinstance(value, str) else f"{_whole('queue', value, 1, 'packets as a whole number, or a text')}p"


def words(value: object) -> list[str]:
    """One text or a list of them."""
    if value is None or isinstance(value, str):
        return [] if value is None else [value]
    if not isinstance(value, (list, tuple)):
        refuse(f"`{value!r}` is neither a text nor a list of texts")
    return [str(item) for item in value]
