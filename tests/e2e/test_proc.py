# SPDX-License-Identifier: GPL-2.0-or-later
"""A program's memory as others see it in /proc: the same text as on Linux, the truth about what is mapped."""

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

from scenarios import Mapping, pair
from simulate import Simulation

LINK = {"rate": "1Gbit", "delay": "1ms"}
# A line of /proc/PID/maps: range, protection, offset, device, inode, padded name.
MAP_LINE = re.compile(
    r"^[0-9a-f]{8,}-[0-9a-f]{8,} [r-][w-][x-][ps] [0-9a-f]{8,} [0-9a-f]{2}:[0-9a-f]{2} \d+ (?: *(?P<name>\S.*))?$"
)
STATUS = ("VmPeak", "VmSize", "VmHWM", "VmRSS", "RssAnon", "RssFile", "RssShmem", "VmData", "VmStk", "VmExe", "VmLib")

# Looks at itself, with the C library's help, and prints only what every Linux would.
LOOK = """
import ctypes, mmap, os, tempfile
def holding(address):
    for line in open("/proc/self/maps"):
        words = line.split()
        start, end = (int(part, 16) for part in words[0].split("-"))
        if start <= address < end:
            return words + [""] * 6, start
libc = ctypes.CDLL(None)
code, start = holding(ctypes.cast(libc.getpid, ctypes.c_void_p).value)
stat = os.stat(code[5])
print("getpid", code[1], code[5].startswith("/usr/lib"), int(code[4]) == stat.st_ino)
print("device", code[3] == f"{os.major(stat.st_dev):02x}:{os.minor(stat.st_dev):02x}")
with open("/proc/self/mem", "rb") as memory:
    memory.seek(start)
    with open(code[5], "rb") as file:
        file.seek(int(code[2], 16))
        print("offset", file.read(64) == memory.read(64))
    buffer = ctypes.create_string_buffer(b"a word in memory")
    memory.seek(ctypes.addressof(buffer))
    print(memory.read(16).decode())
shared = mmap.mmap(-1, 4096)
print("shared", holding(ctypes.addressof(ctypes.c_char.from_buffer(shared)))[0][1:2], end=" ")
print(holding(ctypes.addressof(ctypes.c_char.from_buffer(shared)))[0][5])
frame = ctypes.c_int(3)
print("stack", any(line.endswith("[stack]\\n") for line in open("/proc/self/maps")))
print(os.readlink("/proc/self/exe"))
"""


def test_a_program_finds_itself_as_on_the_host(run: Callable[..., Simulation]) -> None:
    """The oracle is the same program on the host's own Linux."""
    host = subprocess.run(["/usr/bin/python3", "-c", LOOK], capture_output=True, text=True, check=True).stdout
    node = run(pair([{"exec": ["/usr/bin/python3", "-c", LOOK]}], [], LINK, stop="1s")).stdout("h1")
    assert node == host
    assert "a word in memory" in node and "False" not in node


def test_the_text_of_maps_and_status(run: Callable[..., Simulation]) -> None:
    commands = ["cat /proc/self/maps", "cat /proc/self/status", "cat /proc/self/statm"]
    result = run(pair([{"exec": command} for command in commands], [], LINK, stop="1s"))
    lines = [MAP_LINE.match(line) for line in result.stdout("h1").splitlines()]
    assert all(lines), result.stdout("h1")
    names = [line["name"] for line in lines if line]
    assert {"/usr/bin/cat", "[heap]", "[stack]"} <= set(names)
    host = [MAP_LINE.match(line) for line in Path("/proc/self/maps").read_text(encoding="ascii").splitlines()]
    assert all(host), "the pattern itself is not that of this host"
    sizes = dict(re.findall(r"^(\w+):\t *(\d+) kB$", result.stdout("h1", 1), re.MULTILINE))
    assert set(STATUS) <= set(sizes)
    assert int(sizes["VmSize"]) >= int(sizes["VmRSS"]) > 0
    pages = [int(word) for word in result.stdout("h1", 2).split()]
    assert len(pages) == 7
    assert pages[0] >= pages[1] >= pages[2] > 0


def test_others_command_lines_environments_and_memory(run: Callable[..., Simulation]) -> None:
    """Also of a program linked to fixed addresses, while another one of that kind has them."""
    look = """
import os
for pid in filter(str.isdigit, os.listdir("/proc")):
    if "wait-for-it" in open(f"/proc/{pid}/cmdline").read().split("\\0") and int(pid) != os.getpid():
        print(open(f"/proc/{pid}/cmdline").read().replace("\\0", " "))
        print(open(f"/proc/{pid}/environ").read().replace("\\0", "\\n"))
        memory = open(f"/proc/{pid}/mem", "rb")
        memory.seek(0x400000)
        print(memory.read(4)[1:].decode())
"""
    processes: list[Mapping] = [
        {"exec": ["/usr/bin/python3", "-c", "import time; time.sleep(3)", "wait-for-it"], "env": {"COLOUR": "blue"}},
        {"exec": ["/usr/bin/python3", "-c", look], "start": "1s"},
        {"exec": "ps -eo args", "start": "2s"},
    ]
    result = run(pair(processes, [], LINK, stop="5s"))
    text = result.stdout("h1", 1)
    assert "python3 -c import time; time.sleep(3) wait-for-it" in text
    assert "\nCOLOUR=blue\n" in text
    assert text.endswith("\nELF\n")
    listing = result.stdout("h1", 2).splitlines()
    assert "/usr/bin/python3 -c import time; time.sleep(3) wait-for-it" in listing
    assert "ps -eo args" in listing


def test_the_memory_of_relatives(run: Callable[..., Simulation]) -> None:
    """Of two forked programs one is kept elsewhere while the other runs: each is found with its own."""
    script = """
import ctypes, os
word = ctypes.create_string_buffer(b"of the parent")
at = ctypes.addressof(word)
def look(pid):
    with open(f"/proc/{pid}/mem", "rb") as memory:
        memory.seek(at)
        own = memory.read(13).decode()
        memory.seek(0x400000)
        return own, memory.read(4)
ask, answer = os.pipe(), os.pipe()
pid = os.fork()
if pid == 0:
    word.raw = b"of the child!\\0"
    os.write(answer[1], b"x")
    os.read(ask[0], 1)
    print(look(os.getppid()), flush=True)
    os._exit(0)
os.read(answer[0], 1)
print(look(pid), flush=True)
os.write(ask[1], b"x")
os.waitpid(pid, 0)
"""
    host = subprocess.run(["/usr/bin/python3", "-c", script], capture_output=True, text=True, check=True).stdout
    node = run(pair([{"exec": ["/usr/bin/python3", "-c", script]}], [], LINK, stop="1s")).stdout("h1")
    assert node == host
    assert "of the child!" in node and "of the parent" in node
