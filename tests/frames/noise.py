#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Sends damaged frames of many protocols out of eth0, the same ones for the same seed: noise.py SEED COUNT."""

import random
import socket
import struct
import sys
import time
from pathlib import Path

FRAME_MAX_BYTES = 1514
PROTOCOLS = [0, 1, 2, 4, 6, 17, 41, 43, 44, 47, 50, 51, 58, 59, 60, 89, 103, 115, 132, 135, 137, 255]
ETHERTYPES = [0x0800, 0x0806, 0x86DD, 0x8100, 0x88A8, 0x8847, 0x8848, 0x8863, 0x8864, 0x888E, 0x88CC, 0x0004, 0x22F0]


def checksum(data: bytes) -> int:
    """The Internet checksum (RFC 1071)."""
    data += b"\0" * (len(data) % 2)
    total: int = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


class Noise:
    """Frames that are right enough to get past the first check, and wrong enough to meet the others."""

    def __init__(self, seed: int, here: bytes, there: bytes) -> None:
        self.draw = random.Random(seed)
        self.here = here
        self.there = there

    def some(self, low: int, high: int) -> bytes:
        return self.draw.randbytes(self.draw.randint(low, high))

    def transport(self, protocol: int) -> bytes:
        ports = struct.pack("!HH", self.draw.choice([22, 53, 80, 4789, 5201]), self.draw.choice([80, 4789, 5201]))
        if protocol == 6:
            words = self.draw.choice([5, 5, 6, 10, 15, self.draw.randint(0, 15)])
            fixed = struct.pack(
                "!IIBBHHH", *(self.draw.getrandbits(32) for _ in range(2)), words << 4, *self.tcp_rest()
            )
            return ports + fixed + self.some(0, 60)
        if protocol == 17:
            data = self.some(0, 200)
            length = self.draw.choice([8 + len(data), 8 + len(data), self.draw.getrandbits(16)])
            return ports + struct.pack("!HH", length, 0) + data
        if protocol in (1, 58):
            kind = self.draw.choice([0, 3, 4, 5, 8, 11, 12, 128, 129, 130, 131, 133, 134, 135, 136, 137, 143])
            return struct.pack("!BBH", kind, self.draw.randint(0, 15), 0) + self.some(0, 100)
        return self.some(0, 300)

    def tcp_rest(self) -> tuple[int, int, int, int]:
        return self.draw.choice([2, 16, 18, 4, 1, 41, self.draw.getrandbits(8)]), self.draw.getrandbits(16), 0, 0

    def ipv4(self, depth: int) -> bytes:
        protocol = self.draw.choice(PROTOCOLS)
        options = self.draw.randbytes(4 * self.draw.choice([0, 0, 0, 1, 3, 10]))
        body = self.ipv4(depth + 1) if protocol == 4 and depth < 3 else self.transport(protocol)
        words = 5 + len(options) // 4 if self.draw.random() < 0.95 else self.draw.randint(0, 15)
        length = 20 + len(options) + len(body) if self.draw.random() < 0.9 else self.draw.getrandbits(16)
        fragment = 0 if self.draw.random() < 0.7 else self.draw.getrandbits(16)
        source = self.draw.choice(["10.0.0.1", "10.0.0.2", "224.0.0.1", "255.255.255.255", "127.0.0.1", "0.0.0.0"])
        head = struct.pack(
            "!BBHHHBBH4s4s",
            0x40 | words,
            self.draw.getrandbits(8),
            length,
            self.draw.randint(0, 7),
            fragment,
            self.draw.choice([0, 1, 64]),
            protocol,
            0,
            socket.inet_aton(self.draw.choice(["10.0.0.1", source])),
            socket.inet_aton(self.draw.choice(["10.0.0.2", "10.0.0.2", "224.0.0.1", "10.0.0.255", "10.9.9.9"])),
        )
        head += options
        return head[:10] + struct.pack("!H", checksum(head)) + head[12:] + body

    def ipv6(self) -> bytes:
        following = self.draw.choice(PROTOCOLS)
        body = self.transport(following)
        for _ in range(self.draw.choice([0, 0, 1, 2, 6])):
            units = self.draw.choice([0, 0, 1, 2, 255])
            extension = bytes([following, units]) + self.draw.randbytes(6 + 8 * min(units, 3))
            body, following = extension + body, self.draw.choice([0, 43, 44, 60, 51, 135])
        length = len(body) if self.draw.random() < 0.9 else self.draw.getrandbits(16)
        to = self.draw.choice(["fd00::2", "fd00::2", "ff02::1", "ff02::1:ff00:2", "ff02::16", "fe80::1"])
        source = self.draw.choice(["fd00::1", "fe80::1", "::", "ff02::1", "::1"])
        head = struct.pack(
            "!IHBB", 0x60000000 | self.draw.getrandbits(20), length, following, self.draw.choice([1, 255])
        )
        return head + socket.inet_pton(socket.AF_INET6, source) + socket.inet_pton(socket.AF_INET6, to) + body

    def frame(self) -> bytes:
        kind = self.draw.choice([0x0800] * 6 + [0x86DD] * 6 + [0x0806] + ETHERTYPES)
        body = self.ipv4(0) if kind == 0x0800 else self.ipv6() if kind == 0x86DD else self.some(0, 400)
        if kind in (0x8100, 0x88A8):
            body = struct.pack("!HH", self.draw.getrandbits(16), self.draw.choice(ETHERTYPES)) + self.ipv4(0)
        to = self.draw.choice([self.there] * 8 + [b"\xff" * 6, bytes.fromhex("333300000001"), self.draw.randbytes(6)])
        frame = bytearray(to + self.here + struct.pack("!H", kind) + body)
        for _ in range(self.draw.choice([0, 0, 0, 1, 3])):
            frame[self.draw.randrange(12, len(frame))] = self.draw.getrandbits(8)
        if self.draw.random() < 0.05:
            del frame[self.draw.randint(14, len(frame)) :]
        return bytes(frame[:FRAME_MAX_BYTES])


def hardware_address(interface: str) -> bytes:
    text = Path(f"/sys/class/net/{interface}/address").read_text(encoding="ascii")
    return bytes.fromhex(text.strip().replace(":", ""))


def main(seed: int, count: int, there: str) -> None:
    noise = Noise(seed, hardware_address("eth0"), bytes.fromhex(there.replace(":", "")))
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as out:
        out.bind(("eth0", 0))
        for number in range(count):
            out.send(noise.frame())
            if number % 64 == 63:
                time.sleep(0.001)
    print(f"sent {count} frames")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
