# SPDX-License-Identifier: GPL-2.0-or-later
"""gdb support of windtunnel: symbols of every kernel and program, and $node.

    windtunnel gdb net.yaml
    (gdb) run
    (gdb) break tcp_v4_rcv if $node == "h2"
    (gdb) continue

`run` stops when every kernel has booted: from there on all symbols are known. One breakpoint stops in every node. A
condition may compare $node with == and != ; at every stop $node holds the name of the node that runs ("" between
nodes). `windtunnel-images` lists what is loaded where.

Programs linked to fixed addresses (python3, for one) share them: of several in a run, gdb may show the symbols of the
wrong one.
"""

import re

import gdb

HOOK = "windtunnel_gdb_image_hook"
BOOTED = "windtunnel_gdb_booted_hook"
# struct Image of crates/cli/src/debug.rs: path, node, bias; 8 bytes each.
IMAGE_BYTES = 24
COMPARISON = re.compile(r'\$node\s*(==|!=)\s*("(?:[^"\\]|\\.)*")')


def word(data, index):
    return int.from_bytes(data[index * 8 : index * 8 + 8], "little")


ADDRESSES = {}


def address_of(symbol):
    """Address of one of our globals; looked up once per run."""
    if symbol not in ADDRESSES:
        # In C whatever language the current frame is in.
        language = gdb.parameter("language")
        gdb.execute("set language c", to_string=True)
        try:
            ADDRESSES[symbol] = int(gdb.parse_and_eval(f"(unsigned long)&{symbol}"))
        finally:
            gdb.execute(f"set language {language}", to_string=True)
    return ADDRESSES[symbol]


def read(address, length):
    return bytes(gdb.selected_inferior().read_memory(address, length))


def c_string(address):
    text = b""
    while address and b"\0" not in text:
        # Up to the end of a page: the next one may not be mapped.
        text += read(address + len(text), min(64, 4096 - (address + len(text)) % 4096))
    return text.split(b"\0")[0].decode(errors="replace")


def current_node():
    """Name of the running node; "" between nodes or before the run."""
    if gdb.selected_inferior().pid == 0:
        return ""
    try:
        return c_string(word(read(address_of("windtunnel_gdb_current_node"), 8), 0))
    except gdb.error:
        return ""


def images():
    """(path, node, bias) of every loaded image, oldest first."""
    at = word(read(address_of("windtunnel_gdb_images"), 8), 0)
    count = word(read(address_of("windtunnel_gdb_image_count"), 8), 0)
    data = read(at, count * IMAGE_BYTES) if count else b""
    rows = (data[start : start + IMAGE_BYTES] for start in range(0, len(data), IMAGE_BYTES))
    return [(c_string(word(row, 0)), c_string(word(row, 1)), word(row, 2)) for row in rows]


class ImageHook(gdb.Breakpoint):
    """Adds the symbols of new images, without stopping."""

    def __init__(self):
        super().__init__(HOOK, internal=True)
        self.silent = True
        self.known = set()

    def stop(self):
        for path, node, bias in images():
            # Several programs have a library at one address, one after the other.
            if (path, bias) not in self.known:
                self.known.add((path, bias))
                try:
                    gdb.execute(f"add-symbol-file {quoted(path)} -o {bias:#x}", to_string=True)
                except gdb.error as error:
                    print(f"windtunnel: no symbols of {path} ({node}): {error}")
        # Those of images that are gone stay: gdb 13 falls over its own feet when it has to forget a C library's probes.
        # Under a debugger, therefore, a program does not get the addresses of an earlier one while there are others.
        return False


class Booted(gdb.Breakpoint):
    """Stops a run where all symbols are known."""

    def __init__(self):
        super().__init__(BOOTED, internal=True)
        self.silent = True

    def stop(self):
        print('windtunnel: all kernels have booted; for example: break tcp_v4_rcv if $node == "h2", then continue')
        return True


def quoted(path):
    return '"' + path.replace("\\", "\\\\").replace('"', '\\"') + '"'


class NodeIs(gdb.Function):
    """1 if the running node has the given name."""

    # By node name. One function per name, and no string argument, because strings are different things in different
    # languages, and in C they are compared by address.
    made = {}

    def __init__(self, node):
        self.node = node
        base = "_node_is_" + re.sub(r"\W", "_", node)
        taken = {other.name for other in NodeIs.made.values()}
        self.name = base if base not in taken else f"{base}_{len(taken)}"
        super().__init__(self.name)
        NodeIs.made[node] = self

    def invoke(self):
        return int(current_node() == self.node)


def with_function(condition):
    """`$node == "h2"` as a call that every language understands."""

    def call(match):
        node = match[2][1:-1]
        function = NodeIs.made.get(node) or NodeIs(node)
        return f"${function.name}() == {int(match[1] == '==')}"

    return COMPARISON.sub(call, condition)


def rewrite_condition(breakpoint):
    try:
        condition = breakpoint.condition
        if condition and with_function(condition) != condition:
            breakpoint.condition = with_function(condition)
    except (gdb.error, RuntimeError):
        pass  # The breakpoint is gone, or has no condition yet.


def on_stop(_event):
    set_node_variable(current_node())


def on_exit(_event):
    ADDRESSES.clear()
    set_node_variable("")


def set_node_variable(name):
    gdb.set_convenience_variable("node", name)


class ListImages(gdb.Command):
    """List the images windtunnel has loaded: load bias, node, file."""

    def __init__(self):
        super().__init__("windtunnel-images", gdb.COMMAND_FILES)

    def invoke(self, _argument, _from_tty):
        for path, node, bias in images():
            print(f"{bias:#018x}  {node:<16}  {path}")


def install():
    for setting in (
        "set confirm off",
        "set pagination off",
        "set breakpoint pending on",
        # The engine uses these itself: unpatched system calls, faults of programs, traps of rdtsc, the watchdog.
        "handle SIGSYS SIGSEGV SIGUSR2 nostop noprint pass",
        # The C library whose symbols come with a program is not that of this process: it says nothing of its threads.
        "set libthread-db-search-path /nonexistent",
    ):
        gdb.execute(setting, to_string=True)
    ListImages()
    ImageHook()
    Booted()
    set_node_variable("")
    gdb.events.breakpoint_created.connect(rewrite_condition)
    gdb.events.breakpoint_modified.connect(rewrite_condition)
    gdb.events.stop.connect(on_stop)
    gdb.events.exited.connect(on_exit)
    print('windtunnel: type "run"; it stops when all kernels have booted')


install()
