# SPDX-License-Identifier: GPL-2.0-or-later
"""The engine's process: how it is started, reached, and ended."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from ._connection import Closed, Connection, EndListener, Listener
from ._error import Error, last_words
from ._find import find_program
from ._protocol import Hello

LINK = "control.sock"
# Of the host's time: how often to look for the socket, and how long an engine may take to end.
LOOK_S = 0.004
END_S = 60.0
TERMINATE_S = 10.0


class Engine:
    """A running engine that this process drives.

    It has a session of its own, so that Ctrl-C at a terminal is this process' alone, which ends the run in order.
    If this process dies, the connection closes, and the engine ends with its results.
    """

    def __init__(self, scenario: Path, out: Path, options: Sequence[str]) -> None:
        program = find_program()
        self.out = out
        self._complaints: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed by close()
        command = [str(program), "run", "--out", str(out), "--drive", "--quiet", *options, "--", str(scenario)]
        try:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._complaints,
                start_new_session=True,
            )
        except OSError as error:
            self._complaints.close()
            raise Error(f"cannot start {program}: {error.strerror}", exit_code=126) from None
        self.connection: Connection | None = None

    def connect(self, on_output: Listener, on_end: EndListener, patience_s: float | None) -> tuple[Hello, int]:
        """Waits for the engine's socket and takes the wheel; what the run is, and where its time stands, ns.

        Raises
        ------
        Error
            The engine has ended, with what it said; or it speaks another version of the protocol.
        """
        deadline = None if patience_s is None else time.monotonic() + patience_s
        while True:
            connected = self._try_to_connect()
            if connected is not None:
                connection = Connection(connected, on_output, on_end, patience_s)
                try:
                    hello = connection.hello()
                    # An earlier run's link can still be there.
                    if self._is_ours(hello["pid"]):
                        self.connection = connection
                        return hello, connection.drive()
                except Closed:
                    pass
                connection.close()
            if self.process.poll() is not None:
                raise self.death()
            if deadline is not None and time.monotonic() > deadline:
                raise Error(f"the engine was not ready after {patience_s} s of the wall clock")
            time.sleep(LOOK_S)

    def _is_ours(self, pid: int) -> bool:
        """Whether this is the process that was started, or, where that is a script around the engine, comes from it."""
        while pid > 1:
            if pid == self.process.pid:
                return True
            try:
                # The name, in parentheses, can hold anything.
                pid = int(Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[1])
            except (OSError, ValueError, IndexError):
                return False
        return False

    def _try_to_connect(self) -> socket.socket | None:
        connected = socket.socket(socket.AF_UNIX)
        try:
            # The link's own path may be too long for a socket.
            connected.connect(os.readlink(self.out / LINK))
            return connected
        except OSError:
            connected.close()
            return None

    def complaints(self) -> str:
        """What the engine wrote to standard error."""
        with contextlib.suppress(ValueError):
            self._complaints.seek(0)
            return self._complaints.read().decode(errors="replace")
        return ""

    def death(self) -> Error:
        """The engine is gone, or about to: why."""
        code = self.wait()
        return last_words(self.complaints(), 128 - code if code < 0 else code)

    def wait(self) -> int:
        """Waits for the engine's end, which it has been asked for; ends it if it does not come. Its exit code."""
        try:
            return self.process.wait(END_S)
        except subprocess.TimeoutExpired:
            return self.kill()
        except KeyboardInterrupt:
            self.kill()
            raise

    def kill(self) -> int:
        """Ends the engine: first so that it keeps results."""
        self.process.terminate()
        try:
            return self.process.wait(TERMINATE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()

    def close(self) -> None:
        """Lets go of everything; the engine has ended or ends now."""
        if self.connection is not None:
            self.connection.close()
        if self.process.poll() is None:
            self.kill()
        self._complaints.close()
