# SPDX-License-Identifier: GPL-2.0-or-later
"""A program in a node, as `subprocess.Popen` shows one, except that waiting lets virtual time go on."""

from __future__ import annotations

import signal as signals
from collections.abc import Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, AnyStr, Generic, NoReturn, cast

from ._connection import ERROR, OUTPUT
from ._error import Error
from ._units import Time, time_ns

if TYPE_CHECKING:
    from ._run import Run

__all__ = ["Input", "Output", "Process"]

ENCODING = "utf-8"


class Input(Generic[AnyStr]):
    """Standard input of a :class:`Process`. What is written arrives when time goes on."""

    def __init__(self, process: Process[AnyStr]) -> None:
        self._process: Process[AnyStr] = process
        self.closed = False

    def write(self, data: AnyStr) -> int:
        """Sends data; how much it was."""
        if self.closed:
            raise Error("standard input of the program is closed")
        raw = data.encode(ENCODING, "surrogateescape") if isinstance(data, str) else data
        if self._process.text != isinstance(data, str):
            wanted = "a text" if self._process.text else "bytes"
            raise Error(f"{data!r:.40} cannot be written: {wanted} is wanted", hint="see `text` of popen")
        self._process._run._input(self._process.number, bytes(raw))
        return len(data)

    def flush(self) -> None:
        """For those who are used to it: nothing is kept back."""

    def close(self) -> None:
        """There is no more input: the program reads its end."""
        if not self.closed:
            self.closed = True
            self._process._run._command("end_input", program=self._process.number)


class Output(Generic[AnyStr]):
    """Standard output or error of a :class:`Process`. Reading lets virtual time go on until there is something."""

    def __init__(self, process: Process[AnyStr], stream: int) -> None:
        self._process: Process[AnyStr] = process
        self._buffer = process._run._buffer(process.number, stream)

    def _take(self, count: int) -> AnyStr:
        data = bytes(self._buffer[:count])
        del self._buffer[:count]
        return cast(AnyStr, data.decode(ENCODING, "replace") if self._process.text else data)

    def _length_of(self, size: int) -> int | None:
        """Bytes of so many characters, or bytes; None: there are not as many yet."""
        if not self._process.text:
            return size if len(self._buffer) >= size else None
        found = 0
        for at, byte in enumerate(self._buffer):
            if byte & 0xC0 != 0x80:
                if found == size:
                    return at
                found += 1
        whole = self._whole_characters(len(self._buffer)) == len(self._buffer)
        return len(self._buffer) if found == size and whole else None

    def _whole_characters(self, count: int) -> int:
        """At most count bytes that do not end within a character, if anything can follow."""
        if not self._process.text or self._process.returncode is not None:
            return count
        for back in range(1, min(4, count) + 1):
            byte = self._buffer[count - back]
            if byte & 0xC0 == 0xC0:
                needed = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
                return count - back if needed > back else count
            if byte < 0x80:
                break
        return count

    def read_available(self) -> AnyStr:
        """What was printed and not read yet; time stands still."""
        return self._take(self._whole_characters(len(self._buffer)))

    def read(self, size: int = -1, timeout: Time | None = None) -> AnyStr:
        """All until the program's end, or the next `size` characters (bytes, if it is not for text).

        Raises
        ------
        Error
            It has not ended within `timeout` of virtual time, or before the run's end.
        """
        if size < 0:
            self._process.wait(timeout)
            return self._take(len(self._buffer))
        self._process._wait_for(lambda: self._length_of(size) is not None, timeout, f"printed so much ({size})")
        length = self._length_of(size)
        return self._take(len(self._buffer) if length is None else length)

    def readline(self, timeout: Time | None = None) -> AnyStr:
        """The next line with its line feed; empty at the end."""
        self._process._wait_for(lambda: b"\n" in self._buffer, timeout, "printed a line")
        end = self._buffer.find(b"\n")
        return self._take(end + 1 if end >= 0 else len(self._buffer))

    def readlines(self) -> list[AnyStr]:
        """All lines until the program's end."""
        return list(self)

    def __iter__(self) -> Iterator[AnyStr]:
        while line := self.readline():
            yield line


class Process(Generic[AnyStr]):
    """A program that :meth:`windtunnel.Node.popen` has started.

    Attributes
    ----------
    stdin : Input
    stdout, stderr : Output
        On a terminal all is in `stdout`.
    pid : int
        In the node.
    returncode : int or None
        Exit code; minus the number of the signal that ended it; None while it runs.
    args : list of str
        Program and arguments.

    Examples
    --------
    >>> import windtunnel as wt
    >>> net = wt.Network()
    >>> h1 = net.add_node("h1")
    >>> with net.run() as run:
    ...     cat = h1.popen(["cat"])
    ...     _ = cat.stdin.write("hello\\n")
    ...     print(cat.stdout.readline(), end="")
    ...     cat.stdin.close()
    ...     print(cat.wait(timeout="1s"))
    hello
    0
    """

    def __init__(self, run: Run, node: str, args: list[str], number: int, pid: int, text: bool) -> None:
        self._run = run
        self.node = node
        self.args = args
        self.number = number
        self.pid = pid
        self.text = text
        self.stdin: Input[AnyStr] = Input(self)
        self.stdout: Output[AnyStr] = Output(self, OUTPUT)
        self.stderr: Output[AnyStr] = Output(self, ERROR)

    @property
    def returncode(self) -> int | None:
        end = self._run._end_of(self.number)
        if end is None:
            return None
        code, number = end.get("exit"), end.get("signal")
        return code if code is not None else -(number or 0)

    def poll(self) -> int | None:
        """The return code, if there is one; time stands still."""
        return self.returncode

    def wait(self, timeout: Time | None = None) -> int:
        """Lets time go on until the program ends; its return code.

        Raises
        ------
        Error
            It runs on after `timeout` of virtual time, or at the run's end.
        """
        self._wait_for(lambda: False, timeout, "ended", until_end=True)
        return cast(int, self.returncode)

    def next_output(self, timeout: Time | None = None) -> None:
        """Lets time go on until it prints something or ends, or no longer than `timeout`."""
        run = self._run
        until_ns = None if timeout is None else run.now_ns + time_ns(timeout, "timeout")
        if self.returncode is None and run._advance(until_ns=until_ns, output=[self.number]) is not None:
            self._fail("ended", f"when the run came to its end ({run.ended}) at {run.now:g} s", None)

    def communicate(self, input: AnyStr | None = None, timeout: Time | None = None) -> tuple[AnyStr, AnyStr]:
        """Sends all of `input`, waits for the end, and returns what came on standard output and error."""
        if input is not None:
            self.stdin.write(input)
        self.stdin.close()
        self.wait(timeout)
        return self.stdout.read(), self.stderr.read()

    def send_signal(self, signal: int, *, group: bool = False) -> None:
        """Sends a signal, if the program has not ended; with `group`, also to those that it has started."""
        if self.returncode is None:
            self._run._command("signal", node=self.node, pid=-self.pid if group else self.pid, signal=int(signal))

    def terminate(self) -> None:
        """Sends SIGTERM."""
        self.send_signal(signals.SIGTERM)

    def kill(self) -> None:
        """Sends SIGKILL."""
        self.send_signal(signals.SIGKILL)

    def hang_up(self) -> None:
        """Takes its terminal or pipes away; it gets SIGHUP, and may go on all the same."""
        self._run._command("hang_up", program=self.number)

    def resize(self, rows: int, columns: int) -> None:
        """Gives its terminal another size."""
        self._run._command("resize", program=self.number, size={"rows": rows, "columns": columns})

    def _wait_for(self, condition: Any, timeout: Time | None, what: str, until_end: bool = False) -> None:
        """Lets time go on until the condition holds or the program has ended."""
        run = self._run
        until_ns = None if timeout is None else run.now_ns + time_ns(timeout, "timeout")
        while self.returncode is None and not condition():
            wanted = {"programs" if until_end else "output": [self.number]}
            ended = run._advance(until_ns=until_ns, **wanted)
            if self.returncode is not None or condition():
                return
            if ended is not None:
                self._fail(
                    what, f"when the run came to its end ({ended}) at {run.now:g} s", "raise `stop` of the network"
                )
            if until_ns is not None and run.now_ns >= until_ns:
                self._fail(
                    what, f"within {timeout if isinstance(timeout, str) else f'{timeout} s'} of virtual time", None
                )
            if run._paused:
                self._fail(what, "when the run was paused", None)

    def _fail(self, what: str, when: str, hint: str | None) -> NoReturn:
        raise Error(f"`{' '.join(self.args)}` on {self.node} had not {what} {when}", hint=hint)

    def __enter__(self) -> Process[AnyStr]:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if kind is None:
            self.stdin.close()
            self.wait()

    def __repr__(self) -> str:
        return f"<Process {' '.join(self.args)!r} on {self.node}: returncode {self.returncode}>"
