# SPDX-License-Identifier: GPL-2.0-or-later
"""What users of Mininet know by heart: its names for building and driving a network, with its units."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, cast

from ._error import Error, refuse
from ._units import Time, time_ns

if TYPE_CHECKING:
    from ._link import Link
    from ._network import Network
    from ._node import Node
    from ._run import Run

__all__ = ["MininetNames", "Throughput"]

PING_WAIT_S = 1
LISTEN_S = 0.1


class Throughput(NamedTuple):
    """What iperf3 measured, bits per second of payload."""

    sent_bps: float
    received_bps: float
    report: dict[str, Any]
    """All that iperf3's client says, from its JSON."""

    def __str__(self) -> str:
        return f"{self.received_bps / 1e6:.3g} Mbit/s received, {self.sent_bps / 1e6:.3g} Mbit/s sent"

    def __repr__(self) -> str:
        return f"<Throughput: {self}>"


class MininetNames:
    """Part of :class:`windtunnel.Network`."""

    @property
    def _net(self) -> Network:
        return cast("Network", self)

    @property
    def hosts(self) -> list[Node]:
        """Nodes that are neither routers nor switches."""
        return [node for node in self._net.nodes.values() if node.kind == "host"]

    @property
    def switches(self) -> list[Node]:
        """Nodes that are switches."""
        return [node for node in self._net.nodes.values() if node.kind == "switch"]

    def get(self, *names: str) -> Any:
        """A node by name, or a list of nodes."""
        found = [self._net[name] for name in names]
        return found[0] if len(found) == 1 else found

    def addHost(self, name: str, ip: str | None = None, mac: str | None = None, **options: Any) -> Node:
        """:meth:`Network.add_node`; `ip` (with prefix length) and `mac` are those of its first interface."""
        node = self._net.add_node(name, **options)
        if mac is not None:
            node._spec.setdefault("interfaces", {}).setdefault("eth0", {})["mac"] = mac
        if ip is not None:
            self._net._first_address[name] = ip
        return node

    def addSwitch(self, name: str, **options: Any) -> Node:
        """:meth:`Network.add_switch`."""
        return self._net.add_switch(name, **options)

    def addRouter(self, name: str, **options: Any) -> Node:
        """:meth:`Network.add_router`."""
        return self._net.add_router(name, **options)

    def addLink(
        self,
        a: Node | str,
        b: Node | str,
        *,
        bw: float | None = None,
        delay: Time | None = None,
        jitter: Time | None = None,
        loss: float | None = None,
        max_queue_size: int | None = None,
        intfName1: str | None = None,
        intfName2: str | None = None,
        **options: Any,
    ) -> Link:
        """:meth:`Network.add_link` in Mininet's units: `bw` in Mbit/s, `loss` in %, `max_queue_size` in packets."""
        if bw is not None:
            options["rate"] = bw * 1e6
        if loss is not None:
            options["loss"] = loss if isinstance(loss, str) else loss / 100
        if max_queue_size is not None:
            options["queue"] = max_queue_size
        ends = [f"{node}:{name}" if name else node for node, name in ((a, intfName1), (b, intfName2))]
        return self._net.add_link(*ends, delay=delay, jitter=jitter, **options)

    def addController(self, *_: Any, **__: Any) -> NoReturn:
        """There is none: switches are Linux bridges, which learn by themselves."""
        refuse(
            "there are no controllers: a switch is a Linux bridge, which learns by itself", "leave addController out"
        )

    def configLinkStatus(self, a: str, b: str, status: str) -> None:
        """Takes the links between two nodes ``"down"`` or ``"up"``."""
        if status not in ("up", "down"):
            refuse(f"`{status}` is not the status of a link; allowed: up, down")
        found = [link for link in self._net.links if {link.a.node.name, link.b.node.name} == {str(a), str(b)}]
        if not found:
            refuse(f"there is no link between `{a}` and `{b}`")
        for link in found:
            getattr(link, status)()

    def start(self, **options: Any) -> Run:
        """Starts a run, as :meth:`Network.run`; :meth:`stop` ends it."""
        return self._net.run(**options)

    def stop(self) -> None:
        """Ends the run, if there is one."""
        run = self._net._live
        if run is not None:
            run.stop()

    def pingall(self, timeout: Time = PING_WAIT_S, quiet: bool = False) -> float:
        """Has each host ping each other once, and says who reached whom.

        Parameters
        ----------
        timeout : float or str
            How long to wait for an answer, virtual time.
        quiet : bool
            Whether to print nothing.

        Returns
        -------
        float
            How many percent of the answers did not come.

        Examples
        --------
        >>> import windtunnel as wt
        >>> net = wt.Network()
        >>> for name in ("h1", "h2", "h3"):
        ...     _ = net.addHost(name)
        >>> s1 = net.addSwitch("s1")
        >>> for host in net.hosts:
        ...     _ = net.addLink(host, s1, bw=100, delay="1ms")
        >>> with net.run():
        ...     lost = net.pingall()
        h1 -> h2 h3
        h2 -> h1 h3
        h3 -> h1 h2
        0% lost (6 of 6 answered)
        """
        hosts = self.hosts
        if len(hosts) < 2:
            refuse(f"{len(hosts)} hosts cannot ping each other", "add hosts; routers and switches do not count")
        wait_s = time_ns(timeout, "timeout") / 1e9
        answered = 0
        for host in hosts:
            others = [other for other in hosts if other is not host]
            pings = [host.popen(["ping", "-c", "1", "-W", f"{wait_s:g}", _address(other)]) for other in others]
            reached = [ping.wait() == 0 for ping in pings]
            answered += sum(reached)
            if not quiet:
                print(f"{host} -> {' '.join(other.name if there else 'X' for other, there in zip(others, reached))}")
        total = len(hosts) * (len(hosts) - 1)
        lost = 100 * (total - answered) / total
        if not quiet:
            print(f"{lost:g}% lost ({answered} of {total} answered)")
        return lost

    pingAll = pingall

    def iperf(
        self,
        client: Node | str | tuple[Any, Any] | list[Any],
        server: Node | str | None = None,
        *,
        seconds: float = 5,
        udp: bool = False,
        rate: str | None = None,
        congestion: str | None = None,
        options: str = "",
    ) -> Throughput:
        """Measures with iperf3 how much gets from one node to another.

        Parameters
        ----------
        seconds : float
            For how long, virtual time.
        udp : bool
            Whether it sends datagrams, at `rate`, as in ``"10M"``.
        congestion : str
            Congestion control of the sender: ``"cubic"``, ``"bbr"`` ...
        options : str
            Further options of iperf3's client.

        Examples
        --------
        >>> import windtunnel as wt
        >>> net = wt.Network()
        >>> h1, h2 = net.add_node("h1"), net.add_node("h2")
        >>> cable = net.add_link(h1, h2, rate="10Mbit", delay="1ms")
        >>> with net.run():
        ...     print(net.iperf(h1, h2, seconds=2))
        9.4 Mbit/s received, 9.66 Mbit/s sent
        """
        if server is None:
            if not isinstance(client, (tuple, list)) or len(client) != 2:
                refuse("iperf needs two nodes", "write net.iperf(h1, h2)")
            client, server = client
        sender, receiver = self._net[str(client)], self._net[str(server)]
        daemon = receiver.popen("iperf3 --server --one-off")
        # Until it listens.
        daemon._run.go(LISTEN_S)
        command = f"iperf3 --client {_address(receiver)} --time {seconds:g} --json {options}"
        command += " --udp" if udp else ""
        command += f" --bitrate {rate}" if rate else ""
        command += f" --congestion {congestion}" if congestion else ""
        try:
            said, complaints = sender.popen(command).communicate()
        finally:
            daemon.kill()
        try:
            report = json.loads(said)
        except ValueError:
            raise Error(f"iperf3 on {sender} said no JSON: {(said + complaints).strip()!r:.200}") from None
        if "error" in report:
            raise Error(f"iperf3 on {sender}: {report['error']}")
        end = report["end"]
        if udp:
            rows = [end["sum"], end["sum"]]
            lost = end["sum"].get("lost_percent", 0) / 100
            return Throughput(rows[0]["bits_per_second"], rows[1]["bits_per_second"] * (1 - lost), report)
        return Throughput(end["sum_sent"]["bits_per_second"], end["sum_received"]["bits_per_second"], report)


def _address(node: Node) -> str:
    found = node.ip or node.ip6
    if found is None:
        refuse(f"{node} has no address", "give it one, or a link with automatic ones")
    return found
