# SPDX-License-Identifier: GPL-2.0-or-later
"""Links: what cables do to frames."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ._error import refuse
from ._protocol import LinkSummary
from ._units import Probability, Queue, Rate, Time, probability_text, queue_text, rate_text, time_text

if TYPE_CHECKING:
    from ._network import Network
    from ._node import Interface

__all__ = ["Link"]

DIRECTIONS = ("a_to_b", "b_to_a")
VALUES = ("rate", "delay", "jitter", "loss", "duplicate", "corrupt", "reorder", "queue", "up")


def link_values(values: Mapping[str, Any]) -> dict[str, Any]:
    """Values of a direction as a scenario has them; those that are None are left out."""
    result: dict[str, Any] = {}
    for key, value in values.items():
        if key not in VALUES:
            refuse(f"a link has no value `{key}`; allowed: {', '.join(VALUES)}")
        if value is None:
            continue
        if key == "rate":
            value = rate_text(value)
        elif key in ("delay", "jitter"):
            value = time_text(value, key)
        elif key in ("loss", "duplicate", "corrupt"):
            value = probability_text(value, key)
        elif key == "queue":
            value = queue_text(value)
        elif not isinstance(value, bool):
            refuse(f"{key} `{value!r}` is not allowed; allowed: True and False")
        result[key] = value
    return result


def change_of(
    both: Mapping[str, Any], a_to_b: Mapping[str, Any] | None, b_to_a: Mapping[str, Any] | None, key: str
) -> dict[str, Any]:
    """Values of both directions under `key`, and of each."""
    parts = {key: link_values(both), "a_to_b": link_values(a_to_b or {}), "b_to_a": link_values(b_to_a or {})}
    return {name: part for name, part in parts.items() if part}


class Link:
    """A cable between two interfaces. Made by :meth:`windtunnel.Network.add_link`.

    Attributes
    ----------
    a, b : Interface
        Its ends.
    """

    def __init__(self, network: Network, a: Interface, b: Interface, spec: dict[str, Any]) -> None:
        self._network = network
        self.a = a
        self.b = b
        self._spec = spec

    def set(
        self,
        *,
        rate: Rate | None = None,
        delay: Time | None = None,
        jitter: Time | None = None,
        loss: Probability | None = None,
        duplicate: Probability | None = None,
        corrupt: Probability | None = None,
        reorder: bool | None = None,
        queue: Queue | None = None,
        a_to_b: Mapping[str, Any] | None = None,
        b_to_a: Mapping[str, Any] | None = None,
    ) -> None:
        """Gives it other values, now if the network is live; what is not named stays.

        Parameters
        ----------
        rate : int or str
            Bits per second, or as in ``"10Mbit"``.
        delay, jitter : float or str
            Seconds, or as in ``"5ms"``.
        loss, duplicate, corrupt : float or str
            Probabilities from 0 to 1, or as in ``"1%"``.
        queue : int or str
            Packets, or as in ``"64kB"`` or ``"nic"``.
        a_to_b, b_to_a : dict
            Such values for one direction.
        """
        both = {
            "rate": rate, "delay": delay, "jitter": jitter, "loss": loss, "duplicate": duplicate,
            "corrupt": corrupt, "reorder": reorder, "queue": queue,
        }  # fmt: skip
        if self._network._live is None:
            change = change_of(both, a_to_b, b_to_a, "both")
            # What is said of both holds for a direction that had a value of its own, too.
            for direction in DIRECTIONS:
                own = self._spec.get(direction) or {}
                own.update({key: value for key, value in change.get("both", {}).items() if key in own})
            for key, values in change.items():
                self._spec.setdefault(key, {}).update(values)
            return
        self._change(change_of(both, a_to_b, b_to_a, "set"))

    def down(self) -> None:
        """It loses its carrier, and all that is on the way."""
        self._carrier(False)

    def up(self) -> None:
        """It gets its carrier back."""
        self._carrier(True)

    def _carrier(self, up: bool) -> None:
        if self._network._live is None:
            self._spec.setdefault("both", {})["up"] = up
            return
        self._change({"up" if up else "down": True})

    def _change(self, change: dict[str, Any]) -> None:
        if not change:
            refuse("nothing of the link is to change", 'name a value, as in link.set(delay="5ms")')
        run = self._network._live
        assert run is not None, "only of live networks"
        run._command("link", change={"link": self.ends, **change})

    @property
    def ends(self) -> list[str]:
        """Both ends as scenarios name them: ``["h1:eth0", "h2:eth0"]``."""
        return [str(self.a), str(self.b)]

    def counters(self) -> LinkSummary:
        """Its counters since the start of the run."""
        run = self._network._live
        if run is None:
            refuse("the network does not run: there are no counters", "after a run they are in run.summary")
        return next(row for row in run.counters() if [row["a"], row["b"]] == self.ends)

    def __str__(self) -> str:
        return f"{self.a} -- {self.b}"

    def __repr__(self) -> str:
        return f"<Link {self}>"
