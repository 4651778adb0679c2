#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Packs a built program and the current kernel: a wheel, a Debian package, and an archive with debug symbols of both.

All are made from one tree of bin, lib and share, and hold nothing of the day or the machine: packed twice, they are
the same bytes.
"""

import argparse
import gzip
import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
SERIES = "6.12"
TARGET = "x86_64-unknown-linux-gnu"
PROGRAM_MAX_BYTES = 12_000_000
WHEEL_MAX_BYTES = 25_000_000
# Of these, linked into the program: Debian's own statement of their licences.
LINKED_LIBRARIES = {"GNU C library": "libc6", "libgcc (unwinder)": "libgcc-s1"}
COMPLETIONS = {
    "bash": "bash-completion/completions/windtunnel",
    "fish": "fish/vendor_completions.d/windtunnel.fish",
    "zsh": "zsh/vendor-completions/_windtunnel",
}
BROKER_UNIT = """\
[Unit]
Description=Windtunnel's broker: lends ports of this host's own address
Documentation=man:windtunnel-broker(1)
ConditionPathExists=/etc/windtunnel/broker.toml
After=network.target

[Service]
ExecStart=/usr/bin/windtunnel broker
Restart=on-failure
RuntimeDirectory=windtunnel
RuntimeDirectoryMode=0755
CapabilityBoundingSet=CAP_NET_ADMIN CAP_NET_BIND_SERVICE CAP_NET_RAW
NoNewPrivileges=yes
ProtectSystem=strict
ProtectHome=yes
PrivateTmp=yes
PrivateDevices=yes
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK AF_PACKET
LimitNOFILE=65536
MemoryMax=256M

[Install]
WantedBy=multi-user.target
"""
BROKER_EXAMPLE = """\
# To be /etc/windtunnel/broker.toml, owned by root. Who is in no rule may have nothing.
#
# [[allow]]
# users = ["ann"]                # names in /etc/passwd, or numbers
# groups = ["netlab"]
# interfaces = ["eth0"]
# tcp = ["40000-40999"]
# udp = ["40000-40999"]
# ports_max = 200                # of one client; 256 by default
"""
MIT = """\
Permission is hereby granted, free of charge, to any person obtaining a copy of this software and
associated documentation files (the "Software"), to deal in the Software without restriction,
including without limitation the rights to use, copy, modify, merge, publish, distribute,
sublicense, and/or sell copies of the Software, and to permit persons to whom the Software is
furnished to do so, subject to the following conditions:

The above copyright notice and this permission notice shall be included in all copies or substantial
portions of the Software.

THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED, INCLUDING BUT
NOT LIMITED TO THE WARRANTIES OF MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE AND
NONINFRINGEMENT. IN NO EVENT SHALL THE AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES
OR OTHER LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM, OUT OF OR IN
CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE SOFTWARE.
"""


class DistError(Exception):
    """Something that keeps the packages from being made: the text says what, and how to go on."""


@dataclass(frozen=True)
class Job:
    """What is packed, and where things are put."""

    version: str
    epoch_s: int
    program: Path
    kernel: Path
    tree: Path
    debug: Path

    @property
    def record(self) -> dict[str, Any]:
        """What the kernel was built from."""
        record: dict[str, Any] = json.loads((self.kernel.parent / "build.json").read_text(encoding="utf-8"))
        return record

    @property
    def kernel_folder(self) -> str:
        return f"lib/windtunnel/kernels/{SERIES}/{self.record['hash']}"


def run(*command: str | Path, env: dict[str, str] | None = None, cwd: Path = ROOT) -> str:
    """Standard output of a command that has to succeed."""
    words = [str(word) for word in command]
    done = subprocess.run(
        words, cwd=cwd, env={**os.environ, **(env or {})}, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise DistError(
            f"{shlex.join(words)} ended with {done.returncode}:\n{done.stderr.strip() or done.stdout.strip()}"
        )
    return done.stdout


def put(path: Path, data: bytes | str, mode: int = 0o644) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    path.chmod(mode)


def set_times(folder: Path, epoch_s: int) -> None:
    for path in [folder, *folder.rglob("*")]:
        if path.is_dir():
            path.chmod(0o755)
        os.utime(path, (epoch_s, epoch_s), follow_symlinks=False)


def compress(text: bytes) -> bytes:
    return gzip.compress(text, mtime=0)


# ------------------------------------------------------------------ the tree


def check_links_nothing(path: Path) -> None:
    """The wheel's tag promises that any C library will do."""
    if "(NEEDED)" in run("readelf", "--dynamic", "--wide", path):
        raise DistError(f"{path} needs shared libraries; it has to be static")


def lay_out_program(job: Job) -> None:
    stripped, debug = job.tree / "bin/windtunnel", job.debug / "bin/.debug/windtunnel.debug"
    for path in (stripped, debug):
        path.parent.mkdir(parents=True)
    check_links_nothing(job.program)
    run("objcopy", "--only-keep-debug", "--compress-debug-sections", job.program, debug)
    run("objcopy", "--strip-all", f"--add-gnu-debuglink={debug}", job.program, stripped)
    stripped.chmod(0o755)
    debug.chmod(0o644)
    if stripped.stat().st_size > PROGRAM_MAX_BYTES:
        raise DistError(f"the stripped program has {stripped.stat().st_size} bytes; allowed are {PROGRAM_MAX_BYTES}")
    said = run(stripped, "--version").split()[-1]
    if said != job.version:
        raise DistError(f"{job.program} is version {said}, Cargo.toml says {job.version}\nhint: build it again")


def lay_out_kernel(job: Job) -> None:
    """The kernel as the cache has it, byte for byte, and what it was built from."""
    check_links_nothing(job.kernel)
    series = job.tree / "lib/windtunnel/kernels" / SERIES
    put(series / "current", f"{job.record['hash']}\n")
    for name in (job.kernel.name, "build.json", "config"):
        path = job.kernel.parent / name
        put(job.tree / job.kernel_folder / name, path.read_bytes(), 0o755 if path == job.kernel else 0o644)
    debug = f"{job.kernel.name}.debug"
    put(job.debug / job.kernel_folder / debug, (job.kernel.parent / debug).read_bytes())
    for name in run("git", "ls-files", "-z", "kernel").rstrip("\0").split("\0"):
        path = ROOT / name
        put(job.tree / "lib/windtunnel" / name, path.read_bytes(), 0o755 if os.access(path, os.X_OK) else 0o644)


def lay_out_share(job: Job) -> None:
    program, share = job.tree / "bin/windtunnel", job.tree / "share"
    with tempfile.TemporaryDirectory() as temp:
        run(program, "man", "--out", temp)
        for page in Path(temp).iterdir():
            put(share / "man/man1" / f"{page.name}.gz", compress(page.read_bytes()))
    for shell, place in COMPLETIONS.items():
        put(share / place, run(program, "completions", shell))
    doc = share / "doc/windtunnel"
    put(doc / "LICENSE", (ROOT / "LICENSE").read_bytes())
    put(doc / "changelog.gz", compress((ROOT / "CHANGELOG.md").read_bytes()))
    put(doc / "third-party-licences.txt.gz", compress(third_party(job).encode()))
    put(doc / "kernel-source.txt", kernel_source(job))
    put(doc / "copyright", copyright_file())
    for example in sorted((ROOT / "examples").glob("*.yaml")):
        put(doc / "examples" / example.name, example.read_bytes())


def kernel_source(job: Job) -> str:
    record = job.record
    return f"""\
The library kernel, {job.kernel_folder}/{job.kernel.name}
is Linux, under GPL-2.0 with its note on system calls. It was built from:

  package        {record["package"]} {record["version"]} of Debian, unmodified
  SHA-256        {record["package_sha256"]} (of the .deb)
  where          apt-get download {record["package"]}={record["version"]}
                 https://snapshot.debian.org/package/linux/{record["version"]}/
  added to it    lib/windtunnel/kernel of this package: arch/, include/, profile/, and the script `build`
  configuration  {job.kernel_folder}/config
  compiler       {record["compiler"]}
  linker         {record["linker"]}
  result         SHA-256 {record["image_sha256"]}

`windtunnel kernel build` makes it again; with the same compiler and linker, the same bytes.
"""


def copyright_file() -> str:
    return """\
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: windtunnel
Comment:
 The program contains libraries by others: third-party-licences.txt.gz has all names and texts.
 Where the kernel's source is: kernel-source.txt.

Files: *
Copyright: The Windtunnel authors
License: GPL-2.0-or-later

Files: lib/windtunnel/kernels/*
Copyright: Linus Torvalds and many others
License: GPL-2.0 WITH Linux-syscall-note

License: GPL-2.0-or-later
 The text of the GNU General Public License, version 2, is in LICENSE,
 and on Debian in /usr/share/common-licenses/GPL-2.

License: GPL-2.0 WITH Linux-syscall-note
 The GNU General Public License, version 2, as in LICENSE. Programs that use kernel
 services by normal system calls are not derived works.
"""


# ------------------------------------------------------------------ licences


def crates() -> list[dict[str, Any]]:
    """What is compiled into the program and not ours, as `cargo metadata` describes it; procedural macros, too."""
    cargo = ("--locked",)
    listed = run(
        "cargo",
        "tree",
        *cargo,
        "-p",
        "windtunnel",
        f"--target={TARGET}",
        "--edges=normal",
        "--prefix=none",
        "--format={p}",
    )
    wanted = {tuple(line.split()[:2]) for line in listed.splitlines() if line}
    everything = run("cargo", "metadata", *cargo, "--format-version=1", f"--filter-platform={TARGET}")
    packages = [package for package in json.loads(everything)["packages"] if package["source"]]
    return sorted(
        (package for package in packages if (package["name"], f"v{package['version']}") in wanted),
        key=lambda package: (package["name"], package["version"]),
    )


def licence_texts(package: dict[str, Any]) -> list[str]:
    """The texts that come with a crate, or, where its author left it out, the MIT licence that it names."""
    folder = Path(package["manifest_path"]).parent
    names = re.compile(r"(?i)(licen[cs]e|copying|copyright|notice|unlicense)")
    found = [path for path in sorted(folder.iterdir()) if names.match(path.name)]
    files = [path for path in found if path.is_file()]
    for path in found:
        if path.is_dir():
            files += sorted(inner for inner in path.iterdir() if inner.is_file())
    if files:
        return [path.read_text(encoding="utf-8", errors="replace").strip() + "\n" for path in files]
    if "MIT" not in (package["license"] or ""):
        raise DistError(
            f"crate {package['name']} {package['version']} ({package['license']}) has no text of its licence"
        )
    return [f"Copyright (c) {', '.join(package['authors']) or 'the authors of ' + package['name']}\n\n{MIT}"]


def third_party(job: Job) -> str:
    """All licences of what the program contains: each text once, below the names of those it is of."""
    holders: dict[str, list[str]] = {}
    for package in crates():
        for text in licence_texts(package):
            holders.setdefault(text, []).append(f"{package['name']} {package['version']} ({package['license']})")
    holders.setdefault(f"Copyright (c) The Rust Project Contributors\n\n{MIT}", []).append(
        f"Rust's standard library ({run('rustc', '--version').strip()})"
    )
    for name, debian in LINKED_LIBRARIES.items():
        path = Path("/usr/share/doc") / debian / "copyright"
        if not path.exists():
            raise DistError(f"{path} is not there: the licence of {name}, which is linked into the program")
        holders.setdefault(path.read_text(encoding="utf-8"), []).append(f"{name}, as Debian's {debian} states")
    rule = "=" * 100
    parts = [f"What windtunnel {job.version} contains by others, and its licences.\n"]
    for text, names in holders.items():
        parts.append("\n".join([rule, *names, rule, text]))
    return "\n".join(parts)


# ------------------------------------------------------------------ packages


def make_wheel(job: Job, out: Path) -> Path:
    """By hatchling, from python/ and the tree."""
    tools = Path(run("scripts/python-tools").strip())
    env = {
        "WINDTUNNEL_DIST_ROOT": str(job.tree),
        "SOURCE_DATE_EPOCH": str(job.epoch_s),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    put(job.tree / "VERSION", f"{job.version}\n")
    with tempfile.TemporaryDirectory() as temp:
        run(tools / "python", "-m", "hatchling", "build", "-t", "wheel", "-d", temp, env=env, cwd=ROOT / "python")
        made = next(Path(temp).glob("*.whl"))
        size = made.stat().st_size
        if size > WHEEL_MAX_BYTES:
            raise DistError(f"the wheel has {size} bytes; allowed are {WHEEL_MAX_BYTES}")
        shutil.move(made, out / made.name)
    (job.tree / "VERSION").unlink()
    return out / made.name


def lay_out_broker(root: Path) -> None:
    """The broker's unit, which starts nothing by itself, and an example of its configuration."""
    put(root / "usr/lib/systemd/system/windtunnel-broker.service", BROKER_UNIT)
    put(root / "usr/share/doc/windtunnel/examples/broker.toml", BROKER_EXAMPLE)


def make_deb(job: Job, out: Path, temp: Path) -> Path:
    """The tree below /usr. The program is static, so it depends on nothing."""
    root = temp / "deb"
    shutil.copytree(job.tree, root / "usr", symlinks=True)
    for name in run("git", "ls-files", "-z", "python/windtunnel").rstrip("\0").split("\0"):
        put(root / "usr/lib/python3/dist-packages" / Path(name).relative_to("python"), (ROOT / name).read_bytes())
    put(root / "usr/lib/python3/dist-packages/windtunnel/VERSION", f"{job.version}\n")
    lay_out_broker(root)
    files = [path for path in sorted(root.rglob("*")) if path.is_file()]
    kibibytes = sum((path.stat().st_size + 1023) // 1024 for path in files)
    control = f"""\
Package: windtunnel
Version: {job.version}
Architecture: amd64
Maintainer: The Windtunnel authors <windtunnel@invalid>
Installed-Size: {kibibytes}
Section: net
Priority: optional
Suggests: ethtool, gdb, iperf3, iproute2, iputils-ping, nftables, python3, tcpdump
Description: real networks of real Linux kernels in virtual time
 Every node of a network is a Linux kernel that runs as a library in one ordinary
 process, every program an unmodified binary, and one event queue owns the clock. The
 same version, scenario and seed give the same bytes, on any machine, without root.
"""
    sums = [f"{hashlib.md5(path.read_bytes()).hexdigest()}  {path.relative_to(root)}" for path in files]
    put(root / "DEBIAN/control", control)
    put(root / "DEBIAN/md5sums", "\n".join(sums) + "\n")
    set_times(root, job.epoch_s)
    package = out / f"windtunnel_{job.version}_amd64.deb"
    run(
        "dpkg-deb", "--root-owner-group", "-Zxz", "--threads-max=1", "--build", root, package,
        env={"SOURCE_DATE_EPOCH": str(job.epoch_s), "LC_ALL": "C", "TZ": "UTC"},
    )  # fmt: skip
    return package


def make_debug(job: Job, out: Path) -> Path:
    """Debug symbols, to be unpacked over the folder that `bin` is in, where gdb finds them."""
    path = out / f"windtunnel-{job.version}-debug-x86_64.tar.xz"
    with tarfile.open(path, "w:xz", preset=1, format=tarfile.PAX_FORMAT) as archive:
        for file in sorted(job.debug.rglob("*")):
            if not file.is_file():
                continue
            member = archive.gettarinfo(file, file.relative_to(job.debug).as_posix())
            member.uid = member.gid = 0
            member.uname = member.gname = ""
            member.mtime = job.epoch_s
            with file.open("rb") as content:
                archive.addfile(member, content)
    return path


def dist(program: Path, out: Path, with_debug: bool) -> list[Path]:
    """Makes the packages in `out`; their paths."""
    kernel = Path(run("kernel/build", SERIES).splitlines()[-1])
    version = tomllib.loads((ROOT / "Cargo.toml").read_text(encoding="utf-8"))["workspace"]["package"]["version"]
    epoch = os.environ.get("SOURCE_DATE_EPOCH") or run("git", "log", "-1", "--format=%ct").strip()
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="windtunnel-dist-") as name:
        temp = Path(name)
        job = Job(version, int(epoch), program, kernel, temp / "tree", temp / "debug")
        for step in (lay_out_program, lay_out_kernel, lay_out_share):
            step(job)
        set_times(job.tree, job.epoch_s)
        made = [make_wheel(job, out), make_deb(job, out, temp)]
        return [*made, make_debug(job, out)] if with_debug else made


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="scripts/dist.py", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("program", type=Path, help="the built program, with its debug information")
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="folder for the packages (default: dist)")
    parser.add_argument("--no-debug", action="store_true", help="leave out the archive of debug symbols")
    args = parser.parse_args(argv)
    os.umask(0o022)
    try:
        for path in dist(args.program.absolute(), args.out.absolute(), not args.no_debug):
            print(f"{path.stat().st_size:>10}  {path}")
    except (DistError, OSError) as err:
        print(f"dist: error: {err}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
