# SPDX-License-Identifier: GPL-2.0-or-later
"""The control protocol's wire: frames, messages, and commands with their answers (crates/control is the other side)."""

from __future__ import annotations

import contextlib
import json
import select
import signal
import socket
import struct
import threading
import time
from collections.abc import Iterator
from typing import Any, Callable, cast

from ._error import Error
from ._protocol import PROTOCOL, Answer, Hello, ProgramEnd, Refusal

HEAD = struct.Struct(">IB")
NUMBER = struct.Struct(">Q")
PAYLOAD_MAX = 16 << 20
# Input of programs is sent in pieces of this size, bytes.
PIECE_BYTES = 1 << 20
OUTPUT, ERROR = 1, 2
"""Streams of a program."""

Listener = Callable[[int, int, bytes], None]
EndListener = Callable[[ProgramEnd], None]


class Closed(Exception):
    """The engine has closed the connection."""


class Connection:
    """A connection that drives a run. One command at a time, from whichever thread; :meth:`overtake` may come between.

    Parameters
    ----------
    connected : socket.socket
        Of the run's control socket.
    on_output : callable
        Gets the number of a program, the stream and the bytes of what it printed.
    on_end : callable
        Gets how a program ended.
    patience_s : float, optional
        Longest wait for an answer, seconds of the wall clock; without it there is none.
    """

    def __init__(
        self,
        connected: socket.socket,
        on_output: Listener,
        on_end: EndListener,
        patience_s: float | None = None,
    ) -> None:
        self._socket = connected
        self._on_output = on_output
        self._on_end = on_end
        self._patience_s = patience_s
        self._received = bytearray()
        self._last_id = 0
        self._turn = threading.RLock()
        self._sending = threading.Lock()
        self._is_cut = False
        self.over = False
        """Whether the run has said that it is over."""

    def hello(self) -> Hello:
        """The first message of a run.

        Raises
        ------
        Error
            The run speaks another version of the protocol.
        """
        message = self._message(self._deadline())
        hello = message.get("hello") if isinstance(message, dict) else None
        if not isinstance(hello, dict):
            raise Error(f"this is not a run's control socket: it said {message!r:.80}")
        if hello.get("protocol") != PROTOCOL:
            raise Error(
                f"the engine speaks version {hello.get('protocol')} of the control protocol, "
                f"this package version {PROTOCOL}",
                hint="install the package and the program windtunnel of one version",
            )
        return cast(Hello, hello)

    def drive(self) -> int:
        """Takes the wheel; the virtual time, ns."""
        self._send_message("drive")
        message = self._message(self._deadline())
        driving = message.get("driving") if isinstance(message, dict) else None
        if driving is None:
            self._raise_refusal(message)
        return int(cast(Any, driving)["at_ns"])

    def command(self, name: str, arguments: dict[str, Any]) -> Answer:
        """Sends a command and waits for its answer.

        Raises
        ------
        Error
            The run refuses it, or has not answered in time.
        Closed
            The run is over, or its engine is gone.
        """
        with self._turn, _interrupts_wait():
            number = self._send_command(name, arguments)
            deadline = self._deadline()
            try:
                while True:
                    message = self._message(deadline)
                    answer = message.get("answer") if isinstance(message, dict) else None
                    # Another number is that of a command that was interrupted, or overtook.
                    if answer is not None and answer["id"] == number:
                        if "refused" in answer:
                            raise refusal(answer["refused"])
                        return cast(Answer, answer)
                    if answer is None:
                        self._raise_refusal(message)
            except KeyboardInterrupt:
                # Whoever catches this finds a run that stands still.
                self.overtake("pause")
                raise

    def overtake(self, name: str) -> None:
        """Sends a command that comes before those that wait, and does not wait for an answer: `pause` or `stop`."""
        with contextlib.suppress(Closed):
            self._send_command(name, {})

    def input(self, program: int, data: bytes) -> None:
        """Sends input to a program."""
        with self._turn:
            for at in range(0, len(data), PIECE_BYTES):
                piece = data[at : at + PIECE_BYTES]
                self._send(HEAD.pack(NUMBER.size + len(piece), ord("I")) + NUMBER.pack(program) + piece)

    def drain(self, patience_s: float | None) -> None:
        """Reads until the run closes the connection, so that what programs printed last is there.

        A connection on which nothing can be said any more is closed instead, which ends the run as well.
        """
        if self._is_cut:
            self.close()
        deadline = None if patience_s is None else time.monotonic() + patience_s
        with self._turn:
            try:
                while True:
                    self._message(deadline)
            except (Closed, Error, LookupError, ValueError, struct.error):
                # Ctrl-C can have cost a piece of a frame; the end of the engine is what counts.
                pass

    def close(self) -> None:
        """Lets go of the wheel."""
        self._socket.close()

    def _deadline(self) -> float | None:
        return None if self._patience_s is None else time.monotonic() + self._patience_s

    def _raise_refusal(self, message: Any) -> None:
        if isinstance(message, dict) and "refused" in message:
            raise refusal(message["refused"])
        if message == "run_over":
            self.over = True
            return
        raise Error(f"the engine said what this package does not know: {message!r:.80}")

    def _send_command(self, name: str, arguments: dict[str, Any]) -> int:
        with self._sending:
            self._last_id += 1
            number = self._last_id
        self._send_message({"command": {"id": number, name: arguments}})
        return number

    def _send_message(self, message: Any) -> None:
        try:
            payload = json.dumps(message, ensure_ascii=False).encode()
        except (TypeError, ValueError, UnicodeError) as error:
            # Half a surrogate pair, for instance, is no character.
            raise Error(f"this cannot be sent to the engine: {error}") from None
        if len(payload) > PAYLOAD_MAX:
            raise Error(f"a message of {len(payload)} bytes is too long; allowed: {PAYLOAD_MAX}")
        self._send(HEAD.pack(len(payload), ord("m")) + payload)

    def _send(self, frame: bytes) -> None:
        with self._sending:
            if self._is_cut:
                raise Closed
            try:
                # Ctrl-C can come in the middle of it, and nothing can follow half a frame.
                self._is_cut = True
                self._socket.sendall(frame)
                self._is_cut = False
            except OSError:
                raise Closed from None

    def _message(self, deadline: float | None) -> Any:
        """The next message; what programs printed before goes to its listener."""
        while True:
            length, kind = HEAD.unpack(self._read(HEAD.size, deadline))
            payload = self._read(length, deadline)
            if kind == ord("m"):
                message = json.loads(payload)
                if isinstance(message, dict) and "program_ended" in message:
                    self._on_end(message["program_ended"])
                    continue
                return message
            if kind not in (ord("O"), ord("E")):
                raise Error(f"the engine sent a frame of the unknown kind {kind:#04x}")
            (program,) = NUMBER.unpack_from(payload)
            self._on_output(program, OUTPUT if kind == ord("O") else ERROR, payload[NUMBER.size :])

    def _read(self, count: int, deadline: float | None) -> bytes:
        while len(self._received) < count:
            self._received += self._receive(deadline)
        data = bytes(self._received[:count])
        del self._received[:count]
        return data

    def _receive(self, deadline: float | None) -> bytes:
        try:
            poll = select.poll()
            poll.register(self._socket, select.POLLIN)
            patience_ms = None if deadline is None else max(deadline - time.monotonic(), 0) * 1000
            with _interrupts_come():
                is_there = poll.poll(patience_ms)
            if not is_there:
                raise Error(
                    f"the engine has not answered for {self._patience_s} s of the wall clock",
                    hint="give `run` a longer `timeout`, or look at what its programs compute",
                )
            data = self._socket.recv(1 << 18)
        except OSError:
            raise Closed from None
        if not data:
            raise Closed
        return data


@contextlib.contextmanager
def _interrupts_wait() -> Iterator[None]:
    """Holds Ctrl-C back, but for :func:`_interrupts_come`: it must not cost a piece of a frame that has arrived."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextlib.contextmanager
def _interrupts_come() -> Iterator[None]:
    """Lets Ctrl-C through, if it was held back, while nothing is half done."""
    before = signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def refusal(refused: Refusal) -> Error:
    """A refusal of the engine as an error."""
    return Error(refused["message"], hint=refused.get("hint"), exit_code=refused["exit_code"])
