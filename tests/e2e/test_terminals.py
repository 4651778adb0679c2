# SPDX-License-Identifier: GPL-2.0-or-later
"""Terminals inside a node are Linux's: the same program prints the same on this host and in a node."""

import subprocess
from collections.abc import Callable
from pathlib import Path

from scenarios import pair
from simulate import Simulation

PYTHON = "/usr/bin/python3"
# Works without fork, with a pseudo terminal of its own and a child that posix_spawn starts on it.
PROGRAM = r"""
import fcntl, os, pty, re, select, signal, struct, termios, time, tty

# A shell ignores the first two for what runs in its background, nohup the last: what is started here would, too.
for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
    signal.signal(number, signal.SIG_DFL)

def shown(master, until, patience_s=20):
    seen = b""
    while until not in seen and select.select([master], [], [], patience_s)[0]:
        try:
            piece = os.read(master, 4096)
        except OSError as error:
            seen += b"<" + os.strerror(error.errno).encode() + b">"
            break
        if not piece:
            break
        seen += piece
    return seen

# pairs, names, attributes and sizes
master, slave = pty.openpty()
print(re.sub(r"\d+", "N", os.ttyname(slave)), os.isatty(master), os.isatty(slave))
attributes = termios.tcgetattr(slave)
print([hex(flags) for flags in attributes[:4]], attributes[4:6], attributes[6][:17])
print(os.major(os.stat(os.ttyname(slave)).st_rdev))
termios.tcsetwinsize(slave, (12, 34))
print(termios.tcgetwinsize(master))

# the line discipline: echo, erase, word erase, kill, end of file, newlines
os.write(master, b"one twx\x7fo three\x17four\x15abc\n")
print(shown(master, b"abc\r\n"))
print(os.read(slave, 100))
os.write(master, b"\x04")
print(os.read(slave, 100))
os.write(slave, b"a\nb\tc")
print(shown(master, b"c"))
tty.setraw(slave)
os.write(master, b"raw\r\x03\x04")
print(os.read(slave, 100), select.select([master], [], [], 0)[0])
attributes = termios.tcgetattr(slave)
attributes[6][termios.VMIN], attributes[6][termios.VTIME] = 0, 1
termios.tcsetattr(slave, termios.TCSANOW, attributes)
print(os.read(slave, 1))
tty.setraw(slave)
attributes[3] |= termios.ICANON
attributes[0] |= termios.IXON
termios.tcflush(slave, termios.TCIOFLUSH)
fcntl.ioctl(master, termios.TIOCPKT, struct.pack("i", 1))
os.write(slave, b"packet")
print(os.read(master, 100))
os.close(slave)
fcntl.ioctl(master, termios.TIOCPKT, struct.pack("i", 0))
print(shown(master, b"nothing"))
os.close(master)

def on_terminal(*command):
    '''A program in a session of its own, whose controlling terminal is new: opening one makes it so.'''
    master, slave = pty.openpty()
    path = os.ttyname(slave)
    actions = [(os.POSIX_SPAWN_OPEN, 0, path, os.O_RDWR, 0)]
    actions += [(os.POSIX_SPAWN_DUP2, 0, fd) for fd in (1, 2)]
    pid = os.posix_spawnp(command[0], command, os.environ, file_actions=actions, setsid=True)
    os.close(slave)
    return master, pid

def ended(pid):
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status)

def numbers(seen):
    return re.sub(rb"\d+", b"N", seen)

master, pid = on_terminal("tty")
print(numbers(shown(master, b"\r\n")), ended(pid))
master, pid = on_terminal("stty", "-a")
print(shown(master, b"never"), ended(pid))
master, pid = on_terminal("stty", "size")
print(shown(master, b"never"), ended(pid))

# signals from keys reach the foreground group; a new size raises SIGWINCH; a closed master raises SIGHUP
for key in (b"\x03", b"\x1c"):
    master, pid = on_terminal("cat")
    os.write(master, b"hello\n")
    print(shown(master, b"hello\r\nhello\r\n"))
    print(os.tcgetpgrp(master) == pid)
    os.write(master, key)
    print(ended(pid), shown(master, b"never"))
master, pid = on_terminal("sh", "-c", "trap 'echo resized; exit 9' WINCH; echo ready; read line")
shown(master, b"ready\r\n")
termios.tcsetwinsize(master, (5, 6))
print(ended(pid), shown(master, b"never"))
master, pid = on_terminal("cat")
os.close(master)
print(ended(pid) == -signal.SIGHUP)

# stop and go on; a group without a parent in its session is not stopped by a key
master, pid = on_terminal("cat")
os.write(master, b"x\n")
shown(master, b"x\r\nx\r\n")
os.write(master, b"\x1ay\n")
print(shown(master, b"y\r\ny\r\n"))
os.kill(pid, signal.SIGSTOP)
_, status = os.waitpid(pid, os.WUNTRACED)
print(os.WIFSTOPPED(status), os.WSTOPSIG(status) == signal.SIGSTOP)
os.kill(pid, signal.SIGCONT)
_, status = os.waitpid(pid, os.WCONTINUED)
print(os.WIFCONTINUED(status))
os.write(master, b"z\n\x04")
print(ended(pid), shown(master, b"never"))

# there is no controlling terminal without one
try:
    os.open("/dev/tty", os.O_RDWR)
except OSError as error:
    print(os.strerror(error.errno))
"""


def test_terminals_are_as_on_this_host(run: Callable[..., Simulation], tmp_path: Path) -> None:
    file = tmp_path / "terminals.py"
    file.write_text(PROGRAM, encoding="utf-8")
    host = subprocess.run(
        ["setsid", "--wait", PYTHON, file], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    assert host.returncode == 0, host.stderr
    scenario = pair([{"exec": f"{PYTHON} /opt/terminals.py"}], [], {"rate": "1Gbit", "delay": "1ms"}, stop="60s")
    scenario["nodes"]["h1"]["files"] = {"/opt/terminals.py": {"source": str(file)}}
    assert run(scenario).stdout("h1") == host.stdout
