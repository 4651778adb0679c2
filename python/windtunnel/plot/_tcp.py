# SPDX-License-Identifier: GPL-2.0-or-later
"""TCP in captures: which connections there are, and what each end sent when, as seen at one interface.

Formats: pcap (draft-ietf-opsawg-pcap), RFC 791, RFC 8200 section 4, RFC 9293 section 3.1, RFC 2018 (SACK), RFC 7323
(window scale).
"""

from __future__ import annotations

import mmap
import struct
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from typing import NamedTuple

from .._error import refuse

MAGICS = {
    b"\x4d\x3c\xb2\xa1": ("<", 1),
    b"\xa1\xb2\x3c\x4d": (">", 1),
    b"\xd4\xc3\xb2\xa1": ("<", 1000),
    b"\xa1\xb2\xc3\xd4": (">", 1000),
}
"""By the first bytes of a file: byte order, and nanoseconds of its unit of time."""

FIN, SYN, RST, ACK = 0x01, 0x02, 0x04, 0x10
_TCP = struct.Struct(">HHIIBBH")
_IPV4 = struct.Struct(">BBHHHBB")
# Hop-by-hop options, routing, destination options: they have their length in the second byte.
_IPV6_OPTIONS = {0, 43, 60}
_IPV6_FRAGMENT = 44
_HALF = 1 << 31
_ALL = 1 << 32


class End(NamedTuple):
    """One end of a connection: address as in the packet, and port."""

    address: bytes
    port: int

    def __str__(self) -> str:
        text = str(ip_address(self.address))
        return f"[{text}]:{self.port}" if ":" in text else f"{text}:{self.port}"


class Segment(NamedTuple):
    """One TCP segment. `window` is as sent, not scaled; `sack` has edges of blocks; `scale` is that of a SYN."""

    time_ns: int
    source: End
    target: End
    seq: int
    ack: int
    flags: int
    window: int
    length: int
    sack: tuple[tuple[int, int], ...]
    scale: int | None


def frames(path: Path) -> Iterator[tuple[int, bytes]]:
    """Times, in nanoseconds of the node's clock, and frames of a capture; a record cut short at the end is left out."""
    with path.open("rb") as file:
        head = file.read(24)
        if len(head) < 24 or head[:4] not in MAGICS:
            refuse(f"{path} is no pcap file", "name the folder of a run; pcapng is not read here")
        order, unit_ns = MAGICS[head[:4]]
        link_type = struct.unpack(f"{order}I", head[20:24])[0] & 0xFFFF
        if link_type != 1:
            refuse(f"{path} has frames of link type {link_type}; allowed: 1, Ethernet")
        record = struct.Struct(f"{order}IIII")
        file.seek(0, 2)
        if file.tell() == 24:
            return
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            at, end = 24, len(data)
            while at + 16 <= end:
                seconds, fraction, kept, _ = record.unpack_from(data, at)
                at += 16
                if at + kept > end:
                    return
                yield seconds * 10**9 + fraction * unit_ns, data[at : at + kept]
                at += kept


def dissect(time_ns: int, frame: bytes) -> Segment | None:
    """The TCP segment in an Ethernet frame; None: there is none, or its headers are not whole."""
    at = 12
    while frame[at : at + 2] in (b"\x81\x00", b"\x88\xa8"):
        at += 4
    kind, at = frame[at : at + 2], at + 2
    try:
        if kind == b"\x08\x00":
            return _ipv4(time_ns, frame, at)
        if kind == b"\x86\xdd":
            return _ipv6(time_ns, frame, at)
    except (struct.error, IndexError):
        # The frame ends within a header.
        return None
    return None


def _ipv4(time_ns: int, frame: bytes, at: int) -> Segment | None:
    first, _, total, _, fragment, _, protocol = _IPV4.unpack_from(frame, at)
    header = (first & 15) * 4
    if first >> 4 != 4 or header < 20 or protocol != 6 or fragment & 0x1FFF or total < header:
        return None
    source, target = frame[at + 12 : at + 16], frame[at + 16 : at + 20]
    return _tcp(time_ns, frame, at + header, total - header, source, target)


def _ipv6(time_ns: int, frame: bytes, at: int) -> Segment | None:
    first, length, following = frame[at], int.from_bytes(frame[at + 4 : at + 6], "big"), frame[at + 6]
    source, target = frame[at + 8 : at + 24], frame[at + 24 : at + 40]
    if first >> 4 != 6:
        return None
    at += 40
    while following in _IPV6_OPTIONS or following == _IPV6_FRAGMENT:
        size = 8 if following == _IPV6_FRAGMENT else (frame[at + 1] + 1) * 8
        if following == _IPV6_FRAGMENT and int.from_bytes(frame[at + 2 : at + 4], "big") >> 3:
            return None
        following, at, length = frame[at], at + size, length - size
    return _tcp(time_ns, frame, at, length, source, target) if following == 6 else None


def _tcp(time_ns: int, frame: bytes, at: int, length: int, source: bytes, target: bytes) -> Segment | None:
    """`length`: of header and payload, as the IP header has it."""
    source_port, target_port, seq, ack, offset, flags, window = _TCP.unpack_from(frame, at)
    header = (offset >> 4) * 4
    if header < 20 or header > length or at + header > len(frame):
        return None
    # Nearly all headers have timestamps alone: nothing to look for in these.
    plain = header == 32 and frame[at + 20 : at + 24] == b"\x01\x01\x08\x0a"
    sack, scale = ((), None) if header == 20 or plain else _options(frame[at + 20 : at + header])
    ends = End(source, source_port), End(target, target_port)
    return Segment(time_ns, *ends, seq, ack, flags, window, length - header, sack, scale)


def _options(options: bytes) -> tuple[tuple[tuple[int, int], ...], int | None]:
    """SACK blocks and window scale."""
    sack: tuple[tuple[int, int], ...] = ()
    scale = None
    at = 0
    while at < len(options) and options[at] != 0:
        if options[at] == 1:
            at += 1
            continue
        size = options[at + 1] if at + 1 < len(options) else 0
        if size < 2 or at + size > len(options):
            break
        if options[at] == 3 and size == 3:
            scale = min(options[at + 2], 14)
        elif options[at] == 5 and size % 8 == 2:
            words = struct.unpack_from(f">{(size - 2) // 4}I", options, at + 2)
            sack = tuple(zip(words[::2], words[1::2]))
        at += size
    return sack, scale


@dataclass
class Conversation:
    """One direction of a connection: what `source` sent, in the capture where it is seen first, which is its own."""

    source: End
    target: End
    capture: Path
    """The file."""
    start_ns: int
    """First segment, on the node's clock."""
    bytes: int = 0
    segments: int = 0

    @property
    def name(self) -> str:
        return f"{self.source} → {self.target}"

    @property
    def interface(self) -> str:
        """Where it was captured."""
        return self.capture.stem


def conversations(paths: list[Path]) -> list[Conversation]:
    """Both directions of all connections in some captures, by descending payload, then by start.

    Those that carried no payload, such as the way back of a download, are not among them.
    """
    found: dict[tuple[End, End], Conversation] = {}
    for path in paths:
        here: dict[tuple[End, End], Conversation] = {}
        for time_ns, frame in frames(path):
            segment = dissect(time_ns, frame)
            if segment is None:
                continue
            one = here.get(segment[1:3])
            if one is None:
                one = here[segment[1:3]] = Conversation(segment.source, segment.target, path, time_ns)
            one.bytes += segment.length
            one.segments += 1
        for ends, one in here.items():
            if ends not in found or one.start_ns < found[ends].start_ns:
                found[ends] = one
    carrying = [one for one in found.values() if one.bytes]
    return sorted(carrying, key=lambda one: (-one.bytes, one.start_ns, one.source, one.target))


@dataclass
class Sequence:
    """A connection as tcptrace draws it: positions are bytes since the first, times are seconds of virtual time."""

    new: list[tuple[float, int, int]] = field(default_factory=list)
    """Data sent for the first time: time, first byte, byte after the last."""
    again: list[tuple[float, int, int]] = field(default_factory=list)
    """Data of which some was sent before."""
    acks: list[tuple[float, int]] = field(default_factory=list)
    windows: list[tuple[float, int]] = field(default_factory=list)
    """Up to where the receiver lets the sender send."""
    sacks: list[tuple[float, int, int]] = field(default_factory=list)
    marks: list[tuple[float, int, str]] = field(default_factory=list)
    """SYN, FIN and RST of the sender."""
    rtts: list[tuple[float, float]] = field(default_factory=list)
    """Time of an acknowledgement, and seconds since what it acknowledges was sent."""
    flights: list[tuple[float, int]] = field(default_factory=list)
    """Bytes sent and not yet acknowledged, after each segment."""


class _Tracker:
    """Follows one connection from segment to segment."""

    def __init__(self, conversation: Conversation, epoch_ns: int) -> None:
        self.source, self.target = conversation.source, conversation.target
        self.epoch_ns = epoch_ns
        self.sequence = Sequence()
        self.base: int | None = None
        self.sent_to = 0
        self.acked_to = 0
        self.scales: dict[End, int | None] = {}
        # What an RTT is measured by: end, time, and whether sent once only.
        self.waiting: deque[list[float]] = deque()

    def place(self, number: int) -> int:
        """Bytes since the first, of a sequence number within 2 GiB of the last byte sent."""
        assert self.base is not None
        apart = (number - self.base - self.sent_to) % _ALL
        return self.sent_to + (apart - _ALL if apart >= _HALF else apart)

    def add(self, segment: Segment) -> None:
        if segment.flags & SYN:
            self.scales[segment.source] = segment.scale
        if segment.source == self.source:
            self._sent(segment, (segment.time_ns - self.epoch_ns) / 1e9)
        elif self.base is not None:
            self._answered(segment, (segment.time_ns - self.epoch_ns) / 1e9)

    def _sent(self, segment: Segment, time_s: float) -> None:
        is_syn = bool(segment.flags & SYN)
        if self.base is None:
            # The first byte of data is 0; the SYN's own number comes before it.
            self.base = (segment.seq + 1) % _ALL if is_syn else segment.seq
        start = self.place(segment.seq) + is_syn
        end = start + segment.length
        for flag, name in ((SYN, "SYN"), (FIN, "FIN"), (RST, "RST")):
            if segment.flags & flag:
                self.sequence.marks.append((time_s, end, name))
        if segment.length:
            again = start < self.sent_to
            (self.sequence.again if again else self.sequence.new).append((time_s, start, end))
            if again:
                for sent in self.waiting:
                    if sent[0] > start:
                        sent[2] = False
            if end > self.sent_to:
                self.waiting.append([end, time_s, not again])
            self.sent_to = max(self.sent_to, end)
            self.sequence.flights.append((time_s, self.sent_to - self.acked_to))

    def _answered(self, segment: Segment, time_s: float) -> None:
        if not segment.flags & ACK or segment.flags & RST:
            return
        ack = self.place(segment.ack)
        # Scaled if both ends said so, and never that of a SYN.
        scales = self.scales.get(self.source), self.scales.get(self.target)
        scale = scales[1] if scales[1] is not None and scales[0] is not None and not segment.flags & SYN else 0
        self.sequence.acks.append((time_s, ack))
        self.sequence.windows.append((time_s, ack + (segment.window << (scale or 0))))
        for left, right in segment.sack:
            self.sequence.sacks.append((time_s, self.place(left), self.place(right)))
        last, clean = None, True
        while self.waiting and self.waiting[0][0] <= ack:
            last = self.waiting.popleft()
            clean = clean and bool(last[2])
        # Karn: what was sent twice says nothing.
        if last is not None and clean:
            self.sequence.rtts.append((time_s, time_s - last[1]))
        if ack > self.acked_to:
            # A FIN has a number too.
            self.acked_to = min(ack, self.sent_to)
            self.sequence.flights.append((time_s, self.sent_to - self.acked_to))


def follow(conversation: Conversation, epoch_ns: int) -> Sequence:
    """Reads the capture again, for one connection. Its segments that were lost before the capture are unknown."""
    tracker = _Tracker(conversation, epoch_ns)
    ends = {(conversation.source, conversation.target), (conversation.target, conversation.source)}
    for time_ns, frame in frames(conversation.capture):
        segment = dissect(time_ns, frame)
        if segment is not None and (segment.source, segment.target) in ends:
            tracker.add(segment)
    return tracker.sequence
