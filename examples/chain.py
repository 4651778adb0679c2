#!/usr/bin/env python3
"""Write the scenario of a UDP chain of N nodes: chain.py N [--seconds S] > chain.yaml

The experiment of Figure 2 of "Direct Code Execution" (CoNEXT 2013): the first node sends UDP at 100 Mb/s in datagrams of
1470 bytes over N - 1 links of 1 Gb/s to the last one. All others forward.
"""

import argparse

HEAD = """\
# A chain of {n} nodes: {middle}UDP from one end to the other. Written by: examples/chain.py {args}
#
#     n0 eth1 ----{between} eth0 n{last}
#     10.0.0.1{gap}      10.0.{net}.2
#
# All links: 1 Gb/s, 1 ms. iperf3 sends {seconds} s of 100 Mb/s in datagrams of 1470 bytes (Figure 2 of the paper on Direct Code
# Execution, CoNEXT 2013). Expect: every datagram arrives, whatever N is and however slow the machine: 0 lost (0%).
version: 1
name: chain-udp-{n}

run: {{stop: {stop}s, seed: 1}}

defaults:
  link: {{rate: 1Gbit, delay: 1ms}}

nodes:
"""


def node(index: int, last: int, seconds: int) -> str:
    """The YAML of one node: link i joins node i (.1 on eth1) and node i + 1 (.2 on eth0) as 10.0.i.0/24."""
    addresses = []
    if index > 0:
        addresses.append(f"eth0: 10.0.{index - 1}.2/24")
    if index < last:
        addresses.append(f"eth1: 10.0.{index}.1/24")
    lines = [f"  n{index}:"]
    if 0 < index < last:
        lines.append("    kind: router")
    lines.append(f"    addresses: {{{', '.join(addresses)}}}")
    routes = [f"10.0.{net}.0/24 via 10.0.{index}.2" for net in range(index + 1, last)]
    routes += [f"10.0.{net}.0/24 via 10.0.{index - 1}.1" for net in range(index - 1)]
    if routes:
        lines.append("    routes:")
        lines += [f"      - {route}" for route in routes]
    if index == 0:
        lines += [
            "    processes:",
            f"      - exec: iperf3 -c 10.0.{last - 1}.2 -u -b 100M -l 1470 -t {seconds}",
            "        start: 2s",
            "        expect:",
            "          exit: 0",
            "          stdout:",
            '            matches: " 0/[0-9]+ \\\\(0%\\\\) +receiver"',
        ]
    if index == last:
        lines += [
            "    processes:",
            "      - exec: iperf3 -s -1",
            "        start: 1s",
            "        expect: 0",
        ]
    return "\n".join(lines) + "\n"


def chain(n: int, seconds: int = 50) -> str:
    """The whole scenario."""
    last = n - 1
    middle = f"{n - 2} routers, " if n > 3 else ""
    between = " eth0 n1 eth1 ----" if n > 2 else ""
    between += " ... ----" if n > 3 else ""
    args = str(n) if seconds == 50 else f"{n} --seconds {seconds}"
    text = HEAD.format(
        n=n,
        last=last,
        net=last - 1,
        middle=middle,
        between=between,
        gap=" " * len(between),
        seconds=seconds,
        stop=seconds + 10,
        args=args,
    )
    text += "\n".join(node(index, last, seconds) for index in range(n))
    text += "\nlinks:\n"
    for index in range(last):
        text += f'  - endpoints: ["n{index}:eth1", "n{index + 1}:eth0"]\n'
    return text


def nodes(text: str) -> int:
    """The argument N."""
    value = int(text)
    if not 2 <= value <= 64:
        raise argparse.ArgumentTypeError(f"{value} is not a number of nodes from 2 to 64")
    return value


def main() -> None:
    """Print the scenario asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("n", type=nodes, help="number of nodes, 2 to 64")
    parser.add_argument("--seconds", type=int, default=50, help="how long iperf3 sends (default: 50)")
    options = parser.parse_args()
    print(chain(options.n, options.seconds), end="")


if __name__ == "__main__":
    main()
