# SPDX-License-Identifier: GPL-2.0-or-later
"""Nodes and their interfaces: described before a run, spoken with while it is live."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal, Union, overload

from ._error import Error, refuse
from ._process import Process
from ._run import Command, argv_of
from ._units import Size, Time, size_text, time_text, words

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ._link import Link
    from ._network import Network
    from ._run import PopenOptions, Run
    from ._table import Table

__all__ = ["Interface", "Node"]

Expect = Union[str, int, Mapping[str, Any]]
"""``"success"`` (default), ``"running"``, ``"any"``, an exit code, or as in ``{"stdout": {"contains": "ok"}}``."""
SYSCTLS = "/proc/sys/"


class Interface:
    """An interface of a node, with a link at it.

    Attributes
    ----------
    node : Node
    name : str
    """

    def __init__(self, node: Node, name: str) -> None:
        self.node = node
        self.name = name

    @property
    def link(self) -> Link | None:
        """The link at it."""
        return self.node.network._link_at(str(self))

    @property
    def addresses(self) -> list[str]:
        """Addresses with prefix length, given or automatic."""
        return self.node.network._addresses_of(self.node.name, self.name)

    @property
    def ip(self) -> str | None:
        """Its first IPv4 address."""
        return _first(self.addresses, ":", False)

    @property
    def ip6(self) -> str | None:
        """Its first IPv6 address."""
        return _first(self.addresses, ":", True)

    def configure(
        self,
        *,
        addresses: str | Iterable[str] | None = None,
        mac: str | None = None,
        mtu: int | None = None,
        capture: bool | None = None,
        model: str | None = None,
        rx_ring: int | None = None,
        tx_ring: int | None = None,
        bql: bool | None = None,
        rx_buffer: Size | None = None,
        rx_copybreak: Size | None = None,
        tx_checksum: bool | None = None,
        rx_checksum: bool | None = None,
        tso: bool | None = None,
        uso: bool | None = None,
        gso: bool | None = None,
        gro: bool | None = None,
        gso_max_size: Size | None = None,
        interrupt_gap: Time | None = None,
        interrupt_frames: int | None = None,
    ) -> Interface:
        """Says more about it; what is not given stays as it is.

        Parameters
        ----------
        addresses : str or list of str
            Addresses with prefix length, in place of those it has.
        mac : str
            Its Ethernet address.
        mtu : int
            Bytes of payload of a frame.
        capture : bool
            Whether its frames go to a pcap file.
        model : {"ideal", "virtio", "e1000e", "igb", "mlx5"}
            What kind of NIC it is; what follows takes the place of single values of the model.
        rx_ring, tx_ring : int
            Frames that may wait for an interrupt, and for the wire below the queueing discipline.
        bql : bool
            Whether the driver limits the bytes in its transmit ring.
        rx_buffer, rx_copybreak : int or str
            Bytes of memory that a received frame counts as at least, and the longest frame of which that is not so.
        tx_checksum, rx_checksum, tso, uso : bool
            What the NIC does in place of Linux: checksums, cutting long packets of TCP and UDP.
        gso, gro : bool
            Whether Linux cuts what the NIC does not, and merges what arrives together.
        gso_max_size : int or str
            Bytes of the longest packet to be cut.
        interrupt_gap : float or str
            Least time between two interrupts: seconds, or as in ``"100us"``. The first after a quiet time is not
            delayed.
        interrupt_frames : int
            So many waiting frames interrupt at once.

        Examples
        --------
        >>> import windtunnel as wt
        >>> net = wt.Network()
        >>> link = net.add_link(net.add_node("h1"), net.add_node("h2"))
        >>> link.a.configure(model="e1000e", interrupt_gap="100us")
        <Interface h1:eth0>
        >>> with net.run():
        ...     net["h1"].cmd("ethtool -c eth0 | grep ^rx-usecs:")
        'rx-usecs: 100\\n'
        """
        network = self.node.network
        network._must_not_be_live("its interfaces are fixed")
        if addresses is not None:
            self.node._spec.setdefault("addresses", {})[self.name] = words(
                addresses if isinstance(addresses, str) else list(addresses)
            )
        sizes = {"rx_buffer": rx_buffer, "rx_copybreak": rx_copybreak, "gso_max_size": gso_max_size}
        values = {
            "mac": mac, "mtu": mtu, "capture": capture,
            "model": model, "rx_ring": rx_ring, "tx_ring": tx_ring, "bql": bql,
            **{key: None if size is None else size_text(size, key) for key, size in sizes.items()},
            "tx_checksum": tx_checksum, "rx_checksum": rx_checksum, "tso": tso, "uso": uso, "gso": gso, "gro": gro,
            "interrupt_gap": None if interrupt_gap is None else time_text(interrupt_gap, "interrupt_gap"),
            "interrupt_frames": interrupt_frames,
        }  # fmt: skip
        given = {key: value for key, value in values.items() if value is not None}
        if given:
            self.node._spec.setdefault("interfaces", {}).setdefault(self.name, {}).update(given)
        network._changed()
        return self

    def __str__(self) -> str:
        return f"{self.node.name}:{self.name}"

    def __repr__(self) -> str:
        return f"<Interface {self}>"


class Node:
    """A computer of a network: a Linux kernel, and programs that run on it.

    Made by :meth:`windtunnel.Network.add_node`. What it is made of can be said until the run starts; :meth:`popen`,
    :meth:`cmd` and the methods for files and sysctls are for the time when it is live.

    Attributes
    ----------
    network : Network
    name : str
    """

    def __init__(self, network: Network, name: str) -> None:
        self.network = network
        self.name = name

    @property
    def _spec(self) -> dict[str, Any]:
        spec: dict[str, Any] = self.network._spec["nodes"][self.name]
        return spec

    @property
    def _run(self) -> Run:
        run = self.network._live
        if run is None:
            raise Error(
                f"{self.name} does not run: the network has not been started, or has ended",
                hint="use it inside `with net.run() as run:`, or between net.start() and net.stop()",
            )
        return run

    @property
    def kind(self) -> str:
        """``"host"``, ``"router"`` or ``"switch"``."""
        return str(self._spec.get("kind") or "host")

    @property
    def interfaces(self) -> dict[str, Interface]:
        """Its interfaces by name, in the order in which they were made."""
        return {name: Interface(self, name) for name in self.network._interfaces_of(self.name)}

    @property
    def addresses(self) -> list[str]:
        """Addresses of all interfaces, with prefix length."""
        planned = self.network._planned_interfaces(self.name)
        return [address for name in planned for address in self.network._addresses_of(self.name, name)]

    @property
    def ip(self) -> str | None:
        """Its first IPv4 address."""
        return _first(self.addresses, ":", False)

    @property
    def ip6(self) -> str | None:
        """Its first IPv6 address."""
        return _first(self.addresses, ":", True)

    # Until the run starts.

    def run(
        self,
        command: Command,
        *,
        start: Time = 0,
        stop: Time | None = None,
        expect: Expect | None = None,
        env: Mapping[str, str] | None = None,
        user: str | int | None = None,
        cwd: str | None = None,
        stdin: str | None = None,
    ) -> int:
        """Has the scenario run a program, at a time of its own.

        Parameters
        ----------
        command : str or list of str
            Program and arguments. A text is split like a shell's words; no shell runs it.
        start, stop : float or str
            When it starts, and when it gets SIGTERM: seconds, or as in ``"500ms"``.
        expect : str, int or dict
            How it has to end: ``"success"``, ``"running"``, ``"any"``, an exit code ... If it does not, the run's end
            raises an :class:`Error`.

        Returns
        -------
        int
            Its number on this node, for :meth:`windtunnel.Run.stdout`.

        Examples
        --------
        >>> import windtunnel as wt
        >>> net = wt.Network()
        >>> h1 = net.add_node("h1")
        >>> number = h1.run("hostname", start="1s", expect={"stdout": {"contains": "h1"}})
        >>> with net.run() as run:
        ...     run.to_end()
        >>> run.stdout("h1", number)
        'h1\\n'
        """
        self.network._must_not_be_live("programs of the scenario are fixed", "use popen or cmd")
        entry: dict[str, Any] = {"exec": command if isinstance(command, str) else argv_of(command, False)}
        if start != 0:
            entry["start"] = time_text(start, "start")
        if stop is not None:
            entry["stop"] = time_text(stop, "stop")
        values = {"expect": expect, "env": dict(env) if env else None, "user": user, "cwd": cwd, "stdin": stdin}
        entry.update({key: value for key, value in values.items() if value is not None})
        programs = self._spec.setdefault("processes", [])
        programs.append(entry)
        return len(programs) - 1

    def setup(self, command: Command) -> Node:
        """Adds a command that runs before any program starts: ``ip``, ``tc``, ``nft`` ..."""
        self.network._must_not_be_live("its setup is over", "use cmd")
        self._spec.setdefault("setup", []).append(command if isinstance(command, str) else argv_of(command, False))
        return self

    # While it is live.

    @overload
    def popen(
        self, command: Command, *, text: Literal[True] = ..., **options: Unpack[PopenOptions]
    ) -> Process[str]: ...
    @overload
    def popen(self, command: Command, *, text: Literal[False], **options: Unpack[PopenOptions]) -> Process[bytes]: ...

    def popen(self, command: Command, *, text: bool = True, **options: Unpack[PopenOptions]) -> Process[Any]:
        """Starts a program now, and speaks with it as with a `subprocess.Popen`.

        Parameters
        ----------
        command : str or list of str
            Program and arguments. A text is split like a shell's words; no shell runs it.
        text : bool
            Whether input and output are texts (UTF-8) or bytes.
        shell : bool
            Whether ``sh -c`` runs the command.
        cwd : str
            Its working directory, an absolute path.
        env : dict
            Environment, besides PATH, HOME and the like.
        user : str or int
            Whom it runs as: a name, a number, or ``"1000:1000"``; root by default.
        terminal : (int, int)
            Lines and columns of a terminal that it is to run on, in place of three pipes.

        Raises
        ------
        Error
            It cannot be started: `exit_code` is 127 if it was not found.
        """
        return self._run._start(self.name, command, text, options)

    def cmd(self, command: Command, *words: object, timeout: Time | None = None) -> str:
        """Runs a command with ``sh -c`` and returns what it printed; virtual time goes on until it ends.

        What it leaves in the background runs on; if it has not ended after `timeout` of virtual time, it is killed. The
        exit code is not looked at: see :meth:`check`.

        Examples
        --------
        >>> import windtunnel as wt
        >>> net = wt.Network()
        >>> h1 = net.add_node("h1")
        >>> with net.run():
        ...     h1.cmd("echo $((6 * 7)); hostname")
        '42\\nh1\\n'
        """
        return self._shell(command, words, timeout)[0]

    def check(self, command: Command, *words: object, timeout: Time | None = None) -> str:
        """As :meth:`cmd`, but a command that fails raises an :class:`Error` with its exit code."""
        text, code = self._shell(command, words, timeout)
        if code != 0:
            said = f": {text.strip()}" if text.strip() else ""
            shown = command if isinstance(command, str) else " ".join(map(str, command))
            raise Error(f"`{shown}` on {self.name} ended with {code}{said}", exit_code=code if code > 0 else 128 - code)
        return text

    def _shell(self, command: Command, words: tuple[object, ...], timeout: Time | None) -> tuple[str, int]:
        if isinstance(command, str):
            script = " ".join([command, *map(str, words)])
            # Both streams are one, so that lines keep their order.
            argv = ["sh", "-c", f"exec 2>&1; {script}"]
        else:
            argv = argv_of([*command, *map(str, words)], False)
        process = self.popen(argv)
        try:
            code = process.wait(timeout)
        except Error:
            # As subprocess.run does; where the run has ended there is nobody to end.
            with contextlib.suppress(Error):
                process.send_signal(signal.SIGKILL, group=True)
            raise
        return process.stdout.read_available() + process.stderr.read_available(), code

    def read_file(self, path: str | os.PathLike[str]) -> str:
        """The text of a file, also in /proc and /sys; bytes that are not UTF-8 are replaced. At most 4 MiB."""
        return self.read_bytes(path).decode("utf-8", "replace")

    def read_bytes(self, path: str | os.PathLike[str]) -> bytes:
        """What is in a file. At most 4 MiB."""
        content = self._run._command("read_file", node=self.name, path=os.fspath(path))["file"]
        return content["text"].encode() if "text" in content else bytes.fromhex(content["hex"])

    def write_file(self, path: str | os.PathLike[str], content: str | bytes, mode: int | None = None) -> None:
        """Writes a file, also in /proc and /sys. At most 4 MiB; `mode` is as in ``0o755``."""
        data = {"text": content} if isinstance(content, str) else {"hex": bytes(content).hex()}
        self._run._command("write_file", node=self.name, path=os.fspath(path), content=data, mode=mode)

    def sysctl(self, name: str, value: object = None) -> str:
        """A kernel parameter, after setting it if there is a value: ``h1.sysctl("net.ipv4.ip_forward", 1)``."""
        path = SYSCTLS + (name if "/" in name else name.replace(".", "/"))
        if value is not None:
            self.write_file(path, f"{int(value) if isinstance(value, bool) else value}\n")
        return self.read_file(path).rstrip("\n")

    def tcp(self) -> Table:
        """Its TCP connections as they are now, see :meth:`windtunnel.Run.tcp`."""
        return self._run.tcp(self)

    def mptcp(self) -> Table:
        """Its MPTCP connections as they are now, see :meth:`windtunnel.Run.mptcp`."""
        return self._run.mptcp(self)

    def qdiscs(self) -> Table:
        """Its queueing disciplines as they are now, see :meth:`windtunnel.Run.qdiscs`."""
        return self._run.qdiscs(self)

    def processes(self) -> list[Any]:
        """Its processes, as ``ps`` knows them."""
        return list(self._run.processes(self.name))

    def down(self) -> None:
        """Takes its power away, as by pulling the plug: kernel and programs are gone at once, and its links go down.

        The return code of its programs is -9 then. What needs it is refused until :meth:`up`.
        """
        self._run._command("power", node=self.name, up=False)

    def up(self) -> None:
        """Boots it after :meth:`down`: a new kernel, its disk as the scenario gives it, its setup, its programs.

        Its setup commands may take time: what is asked of it next waits for them.

        Examples
        --------
        >>> import windtunnel as wt
        >>> net = wt.Network()
        >>> h1, h2 = net.add_node("h1"), net.add_node("h2")
        >>> link = net.add_link(h1, h2)
        >>> with net.run() as run:
        ...     run.until("1s")
        ...     h2.down()
        ...     print(h2.is_up, "100% packet loss" in h1.cmd("ping -c 1 -W 1", h2.IP()))
        ...     h2.up()
        ...     print(h2.is_up, " 0% packet loss" in h1.cmd("ping -c 1 -W 1", h2.IP()))
        False True
        True True
        """
        self._run._command("power", node=self.name, up=True)

    @property
    def is_up(self) -> bool:
        """Whether it has power. It takes no virtual time to ask."""
        states = self._run._command("nodes")["nodes"]
        return any(state["node"] == self.name and state["up"] for state in states)

    # As Mininet calls it.

    def IP(self, interface: str | None = None) -> str | None:
        """The first IPv4 address of it, or of an interface of it; the first IPv6 address if there is none."""
        if interface is None:
            return self.ip or self.ip6
        found = self.interfaces.get(interface)
        if found is None:
            refuse(f"{self.name} has no interface `{interface}`; it has {', '.join(self.interfaces) or 'none'}")
        return found.ip or found.ip6

    def MAC(self, interface: str = "eth0") -> str:
        """The Ethernet address of an interface; the node must be live."""
        return self.read_file(f"/sys/class/net/{interface}/address").strip()

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"<Node {self.name}>"


def _first(addresses: list[str], mark: str, has_it: bool) -> str | None:
    return next((address.split("/")[0] for address in addresses if (mark in address) == has_it), None)


def node_fields(values: Mapping[str, Any]) -> dict[str, Any]:
    """A node's part of a scenario, from the arguments of add_node."""
    spec: dict[str, Any] = {}
    for key, value in values.items():
        if value is None:
            continue
        if key in ("memory", "program_memory", "disk"):
            value = size_text(_size(key, value), key)
        elif key == "files":
            value = {
                str(path): {"content": file} if isinstance(file, str) else dict(file) for path, file in value.items()
            }
        elif key in ("root", "cpu") and isinstance(value, os.PathLike):
            value = os.fspath(value)
        elif key == "position":
            value = list(value)
        elif key == "sysctls":
            value = {name: int(item) if isinstance(item, bool) else item for name, item in value.items()}
        spec[key] = value
    return spec


def _size(key: str, value: Size) -> Size:
    if isinstance(value, float):
        refuse(f"{key} `{value}` is not a whole number of bytes", "write it with a unit, as in `64MiB`")
    return value
