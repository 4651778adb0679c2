# SPDX-License-Identifier: GPL-2.0-or-later
"""The chain on the host's own kernel: a network namespace a node, virtual Ethernet between (Mininet, CORE).

Needs root. Everything is made in namespaces of this process's own, which end with it, whatever becomes of it.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import time

OWN = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]


def possible() -> str | None:
    """Why not, or None."""
    done = subprocess.run([*OWN, "ip", "link", "add", "type", "veth"], capture_output=True, text=True, check=False)
    return None if done.returncode == 0 else done.stderr.strip() or "unshare is not allowed here"


def chain(count: int, server: str, client: str, timeout_s: int) -> str:
    """What `client` printed on the first node of a chain, while `server` ran on the last.

    `server` is empty where there is none to start.
    """
    words = [sys.executable, __file__, str(count), server, client, str(timeout_s)]
    done = subprocess.run([*OWN, *words], capture_output=True, text=True, check=False, timeout=timeout_s + 60 + count)
    if done.returncode != 0:
        raise RuntimeError(f"chain of {count} namespaces: {done.stderr.strip()}")
    return done.stdout


def call(*words: str) -> None:
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)


def build(count: int) -> None:
    """Cable i: 10.0.i.0/24, node i has .1 (eth1), node i + 1 has .2 (eth0); every node knows the first and the last."""
    call("mount", "--types", "tmpfs", "none", "/run")
    last = count - 1
    for i in range(1, count + 1):
        call("ip", "netns", "add", f"n{i}")
        call("ip", "-n", f"n{i}", "link", "set", "lo", "up")
        call("ip", "netns", "exec", f"n{i}", "sysctl", "--quiet", "net.ipv4.ip_forward=1")
    for i in range(1, count):
        call(
            "ip", "link", "add", "eth1", "netns", f"n{i}", "type", "veth",
            "peer", "name", "eth0", "netns", f"n{i + 1}",
        )  # fmt: skip
        for node, interface, address in ((f"n{i}", "eth1", f"10.0.{i}.1/24"), (f"n{i + 1}", "eth0", f"10.0.{i}.2/24")):
            call("ip", "-n", node, "address", "add", address, "dev", interface)
            call("ip", "-n", node, "link", "set", interface, "up")
    for i in range(1, count + 1):
        if i > 2:
            call("ip", "-n", f"n{i}", "route", "add", "10.0.1.0/24", "via", f"10.0.{i - 1}.1")
        if i < last:
            call("ip", "-n", f"n{i}", "route", "add", f"10.0.{last}.0/24", "via", f"10.0.{i}.2")


def main(count: int, server: str, client: str, timeout_s: int) -> None:
    build(count)
    if server:
        words = ["ip", "netns", "exec", f"n{count}", *shlex.split(server)]
        subprocess.Popen(words, stdout=subprocess.DEVNULL)  # ends with this process's namespace
        time.sleep(1)
    subprocess.run(["ip", "netns", "exec", "n1", *shlex.split(client)], check=True, timeout=timeout_s)


if __name__ == "__main__":
    # As what `chain` starts: process 1 of a namespace.
    if os.getpid() != 1:
        sys.exit("this is for other programs here; it needs namespaces of its own")
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4]))
