#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Runs damaged program files, the same ones for the same seed: images.py SEED COUNT.

Each is a small static program whose ELF header and program headers were changed, or one that names such a file as its
interpreter. Says how many ended how, and a sum over all ends in order.
"""

import collections
import errno
import hashlib
import os
import random
import struct
import sys
from pathlib import Path

EHDR_BYTES = 64
PHDR_BYTES = 56
PT_LOAD, PT_INTERP, PT_GNU_STACK = 1, 3, 0x6474E551
PF_X, PF_W, PF_R = 1, 2, 4
ET_EXEC, ET_DYN = 2, 3
CODE_AT = 0x1000
# Bytes of code: write(1, 0x10, 1), a store to the data, exit_group(0), and traps up to the end of the page.
CODE = bytes.fromhex("b801000000bf01000000be10000000ba010000000f05b8e700000031ff0f05f4")
WORDS = [0, 1, 7, 0xFFF, 0x1000, (1 << 47) - 4096, *(1 << bit for bit in (30, 31, 32, 36, 38, 47, 62, 63))]
PROGRAM, INTERPRETER = Path("/tmp/image"), Path("/tmp/interpreter")


def program(kind: int, base: int, interpreter: Path | None) -> bytearray:
    """A file of two segments, code and data, each a page."""
    name = (str(interpreter) if interpreter else "").encode() + b"\0"
    segments = [
        (PT_LOAD, PF_R, 0, base, CODE_AT, CODE_AT, 0x1000),
        (PT_LOAD, PF_R | PF_X, CODE_AT, base + CODE_AT, 0x1000, 0x1000, 0x1000),
        (PT_LOAD, PF_R | PF_W, 0x2000, base + 0x2000, 0x1000, 0x3000, 0x1000),
        (PT_GNU_STACK, PF_R | PF_W, 0, 0, 0, 0, 16),
    ]
    if interpreter:
        segments.insert(0, (PT_INTERP, PF_R, 0x800, base + 0x800, len(name), len(name), 1))
    head = struct.pack("<4sBBBBQ", b"\x7fELF", 2, 1, 1, 0, 0)
    head += struct.pack("<HHIQQQI", kind, 62, 1, base + CODE_AT, EHDR_BYTES, 0, 0)
    head += struct.pack("<HHHHHH", EHDR_BYTES, PHDR_BYTES, len(segments), 64, 0, 0)
    for kind_, flags, offset, address, file_bytes, memory_bytes, align in segments:
        head += struct.pack("<IIQQQQQQ", kind_, flags, offset, address, address, file_bytes, memory_bytes, align)
    image = bytearray(head.ljust(0x3000, b"\0"))
    image[0x800 : 0x800 + len(name)] = name
    image[CODE_AT:0x2000] = CODE.ljust(0x1000, b"\xf4")
    return image


def damaged(image: bytearray, draw: random.Random) -> bytes:
    headers = EHDR_BYTES + PHDR_BYTES * 5
    for _ in range(draw.choice([0, 1, 1, 1, 2, 3, 6])):
        size = draw.choice([1, 2, 4, 8, 8, 8])
        at = draw.randrange(4, headers - size) // size * size
        before = int.from_bytes(image[at : at + size], "little")
        word = draw.choice(
            [
                draw.choice(WORDS),
                draw.getrandbits(64) >> draw.randrange(64),
                before ^ 1 << draw.randrange(8 * size),
                before + draw.choice([-4096, -1, 1, 8, 4096, 1 << 20, 1 << 30]),
                -draw.choice(WORDS),
            ]
        )
        image[at : at + size] = (word & ((1 << 8 * size) - 1)).to_bytes(size, "little")
    if draw.random() < 0.05:
        del image[draw.randrange(len(image)) :]
    return bytes(image)


def place(path: Path, content: bytes) -> None:
    """A new file each time: the last one's may still run."""
    path.unlink(missing_ok=True)
    path.write_bytes(content)
    path.chmod(0o755)


def run() -> str:
    try:
        pid = os.posix_spawn(PROGRAM, [str(PROGRAM)], {})
    except OSError as error:
        return errno.errorcode[error.errno or 0]
    status = os.waitpid(pid, 0)[1]
    return f"signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else f"exit {os.WEXITSTATUS(status)}"


def main(seed: int, count: int) -> None:
    draw = random.Random(seed)
    ends: collections.Counter[str] = collections.Counter()
    total = hashlib.sha256()
    for _ in range(count):
        kind, base = draw.choice([(ET_DYN, 0), (ET_DYN, 0), (ET_EXEC, 0x400000)])
        interpreted = draw.random() < 0.3
        if interpreted:
            place(INTERPRETER, damaged(program(ET_DYN, 0, None), draw))
        place(PROGRAM, damaged(program(kind, base, INTERPRETER if interpreted else None), draw))
        end = run()
        ends[end] += 1
        total.update(end.encode() + b"\n")
    print(f"{count} images: " + ", ".join(f"{ends[end]} {end}" for end in sorted(ends)))
    print(f"sum {total.hexdigest()[:16]}")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
