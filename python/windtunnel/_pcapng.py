# SPDX-License-Identifier: GPL-2.0-or-later
"""One capture of a whole run, made of those of its interfaces. Source: draft-ietf-opsawg-pcapng."""

from __future__ import annotations

import heapq
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from ._error import Error, refuse

__all__ = ["merge"]

# Classic captures as the engine writes them: nanoseconds, little-endian, Ethernet.
PCAP_MAGIC = 0xA1B23C4D
PCAP_HEADER = struct.Struct("<IHHiIII")
PCAP_RECORD = struct.Struct("<IIII")
ETHERNET = 1

SECTION_HEADER, INTERFACE, ENHANCED_PACKET = 0x0A0D0D0A, 1, 6
BYTE_ORDER_MAGIC = 0x1A2B3C4D
OPT_END, OPT_COMMENT = 0, 1
SHB_USERAPPL = 4
IF_NAME, IF_DESCRIPTION, IF_TSRESOL = 2, 3, 9
NS_PER_S = 10**9
TEXT_MAX_BYTES = 0xFFFF

Record = tuple[int, int, int, bytes]
"""Time since 1970 in nanoseconds, number of the interface, length on the wire, kept bytes."""


def merge(captures: list[tuple[str, str, Path]], out: str | os.PathLike[str], application: str, comment: str) -> int:
    """Writes the frames of all captures in the order of time, those of one instant in the order of interfaces.

    One frame of each capture is in memory at a time.

    Parameters
    ----------
    captures : list of tuple
        Node, interface and capture of each.
    out : path
        The file to write.
    application, comment : str
        What wrote it, and what it shows.

    Returns
    -------
    int
        Number of frames.

    Raises
    ------
    Error
        A capture cannot be read or is damaged, or the file cannot be written; then there is none.
    """
    path = Path(out)
    temporary = path.with_name(path.name + ".tmp")
    files: list[BinaryIO] = []
    frames = 0
    try:
        files = [_open(capture) for _, _, capture in captures]
        with temporary.open("wb") as file:
            options = _text(OPT_COMMENT, comment) + _text(SHB_USERAPPL, application)
            section = struct.pack("<IHHq", BYTE_ORDER_MAGIC, 1, 0, -1)
            file.write(_block(SECTION_HEADER, section + options + _option(OPT_END, b"")))
            for node, interface, _ in captures:
                options = _text(IF_NAME, f"{node}:{interface}") + _text(OPT_COMMENT, f"node {node}")
                options += _option(IF_TSRESOL, b"\x09") + _option(OPT_END, b"")
                file.write(_block(INTERFACE, struct.pack("<HHI", ETHERNET, 0, 0) + options))
            sources = (_records(of, number, captures[number][2]) for number, of in enumerate(files))
            for time_ns, number, length, data in heapq.merge(*sources, key=_order):
                head = struct.pack("<IIIII", number, time_ns >> 32, time_ns & 0xFFFFFFFF, len(data), length)
                file.write(_block(ENHANCED_PACKET, head + data + bytes(-len(data) % 4)))
                frames += 1
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise Error(f"cannot write {path}: {error.strerror}") from None
    except Error:
        temporary.unlink(missing_ok=True)
        raise
    finally:
        for source in files:
            source.close()
    return frames


def _order(record: Record) -> tuple[int, int]:
    return record[:2]


def _open(path: Path) -> BinaryIO:
    try:
        file = path.open("rb")
    except OSError as error:
        if error.errno == 24:
            refuse(f"{path} cannot be opened beside all other captures", "raise the limit: ulimit -n 65536")
        raise Error(f"cannot read {path}: {error.strerror}") from None
    head = file.read(PCAP_HEADER.size)
    if len(head) < PCAP_HEADER.size or PCAP_HEADER.unpack(head)[0] != PCAP_MAGIC:
        file.close()
        refuse(f"{path} is no capture of windtunnel's: its header is another", "repeat the run")
    return file


def _records(file: BinaryIO, number: int, path: Path) -> Iterator[Record]:
    while head := file.read(PCAP_RECORD.size):
        if len(head) < PCAP_RECORD.size:
            refuse(f"{path} ends within a frame", "a run that was killed leaves such captures; repeat it")
        second, nanosecond, kept, length = PCAP_RECORD.unpack(head)
        data = file.read(kept)
        if len(data) < kept:
            refuse(f"{path} ends within a frame", "a run that was killed leaves such captures; repeat it")
        yield second * NS_PER_S + nanosecond, number, length, data


def _block(kind: int, body: bytes) -> bytes:
    length = struct.pack("<I", len(body) + 12)
    return struct.pack("<I", kind) + length + body + length


def _option(code: int, value: bytes) -> bytes:
    return struct.pack("<HH", code, len(value)) + value + bytes(-len(value) % 4)


def _text(code: int, text: str) -> bytes:
    return _option(code, text.encode()[:TEXT_MAX_BYTES])
