# SPDX-License-Identifier: GPL-2.0-or-later
"""Reads the captures of a run."""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

NANOSECOND_MAGIC = 0xA1B23C4D


@dataclass(frozen=True)
class Packet:
    """One captured frame; time_ns is the node's wall clock."""

    time_ns: int
    frame: bytes

    @property
    def ethertype(self) -> int:
        return int.from_bytes(self.frame[12:14], "big")


def packets(path: Path) -> Iterator[Packet]:
    data = path.read_bytes()
    magic, *_, linktype = struct.unpack_from("<IHHiIII", data)
    assert magic == NANOSECOND_MAGIC, "not a little-endian pcap file with nanoseconds"
    assert linktype == 1, "not Ethernet"
    at = 24
    while at < len(data):
        seconds, nanoseconds, kept, length = struct.unpack_from("<IIII", data, at)
        assert kept == length, "cut short"
        yield Packet(seconds * 10**9 + nanoseconds, data[at + 16 : at + 16 + kept])
        at += 16 + kept
