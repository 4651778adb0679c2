# SPDX-License-Identifier: GPL-2.0-or-later
"""The least client that drives a run: frames and messages as the protocol has them, nothing more."""

from __future__ import annotations

import json
import os
import socket
import struct
import subprocess
import time
from pathlib import Path
from typing import Any

PATIENCE_S = 60
HEAD = struct.Struct(">IB")
NUMBER = struct.Struct(">Q")
Message = dict[str, Any]


class Client:
    """A connection to a live run, which may be its driver."""

    def __init__(self, path: Path) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(PATIENCE_S)
        # By its folder: paths of sockets are short.
        folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
        try:
            self.socket.connect(f"/proc/self/fd/{folder}/{path.name}")
        finally:
            os.close(folder)
        self.received = b""
        self.next_id = 1
        self.output: dict[tuple[int, str], bytes] = {}
        self.ended: dict[int, Message] = {}
        self.hello = self.message()["hello"]

    def send(self, message: object) -> None:
        payload = json.dumps(message).encode()
        self.socket.sendall(HEAD.pack(len(payload), ord("m")) + payload)

    def send_input(self, program: int, payload: bytes) -> None:
        self.socket.sendall(HEAD.pack(len(payload) + NUMBER.size, ord("I")) + NUMBER.pack(program) + payload)

    def take(self, length: int) -> bytes:
        while len(self.received) < length:
            more = self.socket.recv(1 << 16)
            if not more:
                raise EOFError
            self.received += more
        taken, self.received = self.received[:length], self.received[length:]
        return taken

    def message(self) -> Any:
        """The next message; output on the way to it is kept."""
        while True:
            length, kind = HEAD.unpack(self.take(HEAD.size))
            payload = self.take(length)
            if kind == ord("m"):
                return json.loads(payload)
            key = (NUMBER.unpack(payload[: NUMBER.size])[0], chr(kind))
            self.output[key] = self.output.get(key, b"") + payload[NUMBER.size :]

    def drive(self) -> None:
        self.send("drive")
        assert "driving" in self.message()

    def begin(self, command: str, **arguments: object) -> int:
        self.next_id += 1
        self.send({"command": {"id": self.next_id, command: arguments}})
        return self.next_id

    def answer(self, number: int) -> Message:
        while True:
            message = self.message()
            if "program_ended" in message:
                self.ended[message["program_ended"]["program"]] = message["program_ended"]
            else:
                answer: Message = message["answer"]
                assert answer["id"] == number, message
                return answer

    def __call__(self, command: str, **arguments: object) -> Message:
        """Sends a command, and waits for its answer."""
        return self.answer(self.begin(command, **arguments))

    def start(self, node: str, *argv: str) -> int:
        started = self("start", node=node, program={"argv": list(argv)})
        assert "started" in started, started
        number: int = started["started"]["program"]
        return number

    def stop(self) -> None:
        self.begin("stop")
        while True:
            try:
                self.message()
            except EOFError:
                return


class Driven:
    """A run that waits for its driver."""

    def __init__(self, engine: Path, scenario: Path, out: Path, *options: str) -> None:
        self.out = out
        self.process = subprocess.Popen(
            [engine, "run", scenario, "--out", out, "--drive", "--quiet", *options],
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
        )

    def client(self) -> Client:
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                return Client(self.out / "control.sock")
            except OSError:
                assert self.process.poll() is None, self.process.communicate()
                assert time.monotonic() < deadline
                time.sleep(0.01)

    def driver(self) -> Client:
        client = self.client()
        client.drive()
        return client

    def end(self) -> tuple[int, str]:
        """Exit code and standard error, once it has ended."""
        _, error = self.process.communicate(timeout=PATIENCE_S)
        return self.process.returncode, error

    def summary(self) -> Any:
        return json.loads((self.out / "summary.json").read_text(encoding="utf-8"))

    def replay(self, engine: Path) -> Any:
        """The summary of the run repeated from its log."""
        scenario, out = self.out.with_name("scenario.yaml"), self.out.with_name("replayed")
        log = self.out / "input.jsonl"
        subprocess.run([engine, "run", scenario, "--out", out, "--replay", log, "--quiet"], check=True)
        return json.loads((out / "summary.json").read_text(encoding="utf-8"))
