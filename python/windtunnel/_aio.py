# SPDX-License-Identifier: GPL-2.0-or-later
"""Runs for asyncio: what lets time go on does so in a thread, and the event loop goes on beside it."""

from __future__ import annotations

import os
from types import TracebackType
from typing import TYPE_CHECKING, Any, Callable, TypeVar

from ._error import Error
from ._run import Run
from ._units import Time

if TYPE_CHECKING:
    import asyncio

    from ._network import Network

__all__ = ["AsyncRun"]

Result = TypeVar("Result")


class AsyncRun:
    """A :class:`Run` for ``async with``. Made by :meth:`windtunnel.Network.arun`.

    Attributes
    ----------
    run : Run
        The run itself; what takes no time, such as ``run.now``, can be asked of it.

    Examples
    --------
    >>> import asyncio
    >>> import windtunnel as wt
    >>> net = wt.Network()
    >>> h1 = net.add_node("h1")
    >>> async def main():
    ...     async with net.arun() as live:
    ...         await live.until("5s")
    ...         return await live.call(h1.cmd, "hostname")
    >>> asyncio.run(main())
    'h1\\n'
    """

    def __init__(self, network: Network, out: str | os.PathLike[str] | None, options: dict[str, Any]) -> None:
        self._network = network
        self._out = out
        self._options = options
        self._turn: asyncio.Lock | None = None
        self._run: Run | None = None

    @property
    def run(self) -> Run:
        if self._run is None:
            raise Error("the run has not been started", hint="use `async with net.arun() as live`")
        return self._run

    async def call(self, function: Callable[..., Result], *args: Any, **options: Any) -> Result:
        """Calls something that lets time go on: ``await live.call(h1.cmd, "ip route")``.

        One call at a time; others wait, in order. A call that is cancelled is broken off, as by :meth:`Run.pause`.
        """
        import asyncio

        if self._turn is None:
            self._turn = asyncio.Lock()
        async with self._turn:
            working = asyncio.ensure_future(asyncio.to_thread(function, *args, **options))
            try:
                return await asyncio.shield(working)
            except asyncio.CancelledError:
                if self._run is not None:
                    self._run.pause()
                await asyncio.wait([working])
                if not working.cancelled():
                    # Whoever cancelled does not ask how it ended.
                    working.exception()
                raise

    async def until(self, time: Time) -> None:
        """See :meth:`Run.until`."""
        await self.call(self.run.until, time)

    async def go(self, span: Time) -> None:
        """See :meth:`Run.go`."""
        await self.call(self.run.go, span)

    async def step(self) -> None:
        """See :meth:`Run.step`."""
        await self.call(self.run.step)

    async def to_end(self) -> None:
        """See :meth:`Run.to_end`."""
        await self.call(self.run.to_end)

    async def stop(self) -> None:
        """See :meth:`Run.stop`."""
        await self.call(self.run.stop)

    async def __aenter__(self) -> AsyncRun:
        import asyncio

        try:
            self._run = await self.call(self._network.run, self._out, **self._options)
        except asyncio.CancelledError:
            self._network.stop()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.call(self.run.__exit__, kind, error, at)
