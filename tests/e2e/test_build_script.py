# SPDX-License-Identifier: GPL-2.0-or-later
"""kernel/build on a source package of our own that compiles in no time: caching, hashes, verification, errors."""

import hashlib
import io
import json
import os
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from conftest import ROOT

SERIES = "6.12"
# As much of a kernel's build system as the script relies on.
MAKEFILE = """
wt_defconfig:
\techo CONFIG_WT=y > $(O)/.config
olddefconfig:
\tgrep -q CONFIG_GCOV_KERNEL=y $(O)/.config
all:
\t@echo '  CC      init/main.o'
\t$(CC) -g -shared -fPIC -fmacro-prefix-map=$(CURDIR)/= $(KCFLAGS) -o $(O)/vmlinux \\
\t\t$(CURDIR)/init/main.c $(CURDIR)/arch/$(ARCH)/port.c
"""


@dataclass(frozen=True)
class Checkout:
    """A checkout with nothing but kernel/, and a cache of its own that already has the package."""

    folder: Path

    @property
    def cache(self) -> Path:
        return self.folder / "cache"

    @property
    def port(self) -> Path:
        return self.folder / "kernel/arch/wt/port.c"

    def build(self, *options: str) -> subprocess.CompletedProcess[str]:
        env = {"PATH": os.environ["PATH"], "WINDTUNNEL_CACHE": str(self.cache)}
        command: list[str | Path] = [self.folder / "kernel/build", *options, SERIES]
        return subprocess.run(command, env=env, capture_output=True, text=True, check=False)

    def image(self, *options: str) -> Path:
        done = self.build(*options)
        assert done.returncode == 0, done.stderr
        return Path(done.stdout.splitlines()[-1])


def make_package(folder: Path) -> Path:
    """linux-source-6.12 as Debian lays it out, with a two-line kernel."""
    tree = folder / "linux-source-6.12"
    (tree / "init").mkdir(parents=True)
    (tree / "arch/x86").mkdir(parents=True)
    (tree / "Makefile").write_text(MAKEFILE, encoding="utf-8")
    (tree / "init/main.c").write_text("int wt_main(void) { return 1; }\n", encoding="utf-8")
    (tree / "arch/x86/link").symlink_to("../../init/main.c")
    (tree / "script.sh").write_text("#!/bin/sh\n", encoding="utf-8")
    (tree / "script.sh").chmod(0o755)
    root = folder / "root"
    (root / "usr/src").mkdir(parents=True)
    (root / "DEBIAN").mkdir()
    (root / "DEBIAN/control").write_text(
        "Package: linux-source-6.12\nVersion: 6.12.1-1\nArchitecture: all\nMaintainer: none <none@invalid>\n"
        "Description: none\n",
        encoding="utf-8",
    )
    subprocess.run(["tar", "-cJf", root / "usr/src/linux-source-6.12.tar.xz", "-C", folder, tree.name], check=True)
    deb = folder / "package.deb"
    subprocess.run(["dpkg-deb", "--build", root, deb], check=True, stdout=subprocess.DEVNULL)
    return deb


@pytest.fixture
def checkout(tmp_path: Path) -> Iterator[Checkout]:
    deb = make_package(tmp_path / "package")
    sha256 = hashlib.sha256(deb.read_bytes()).hexdigest()
    kernel = tmp_path / "kernel"
    (kernel / "include/windtunnel").mkdir(parents=True)
    (kernel / "include/windtunnel/boundary.h").write_text("#define WT 1\n", encoding="utf-8")
    (kernel / "arch/wt").mkdir(parents=True)
    shutil.copy(ROOT / "kernel/build", kernel / "build")
    (kernel / "versions.toml").write_text(
        f'["{SERIES}"]\npackage = "linux-source-6.12"\nknown_good = "6.12.1-1"\nsha256 = "{sha256}"\narch = "wt"\n'
        'defconfig = "wt_defconfig"\nimage = "vmlinux"\nobjects = 2\n',
        encoding="utf-8",
    )
    result = Checkout(tmp_path)
    result.port.write_text(
        '#include "include/windtunnel/boundary.h"\nint wt_kernel = WT;\nconst char *file = __FILE__;\n',
        encoding="utf-8",
    )
    (result.cache / "packages").mkdir(parents=True)
    shutil.copy(deb, result.cache / f"packages/linux-source-6.12_6.12.1-1_{sha256[:16]}.deb")
    yield result


def test_result_and_record(checkout: Checkout) -> None:
    image = checkout.image()
    build_hash = image.parent.name
    assert image == checkout.cache / "kernels" / SERIES / build_hash / "liblinux-6.12.so"
    assert (image.parent.parent / "current").read_text(encoding="ascii") == f"{build_hash}\n"
    record = json.loads((image.parent / "build.json").read_text(encoding="utf-8"))
    assert record["hash"] == build_hash
    assert record["version"] == "6.12.1-1"
    assert record["known_good"] is True
    assert record["image_sha256"] == hashlib.sha256(image.read_bytes()).hexdigest()
    assert (image.parent / "config").read_text(encoding="ascii") == "CONFIG_WT=y\n"
    # Symbols for debuggers stand aside; what a loader needs stays.
    assert "not found" not in subprocess.run(["ldd", image], capture_output=True, text=True, check=False).stdout
    sections = subprocess.run(["readelf", "-SW", image], capture_output=True, text=True, check=True).stdout
    assert ".dynsym" in sections and ".gnu_debuglink" in sections and ".debug_info" not in sections
    aside = subprocess.run(["readelf", "-SW", f"{image}.debug"], capture_output=True, text=True, check=True).stdout
    assert ".debug_info" in aside
    # Nothing is left behind.
    assert {path.name for path in (checkout.cache / "kernels" / SERIES).iterdir()} == {build_hash, "current", "lock"}
    assert not (checkout.cache / "work" / SERIES / "source").exists()


def test_second_time_comes_from_the_cache(checkout: Checkout) -> None:
    image = checkout.image()
    made_ns = image.stat().st_mtime_ns
    shutil.rmtree(checkout.cache / "packages")  # not even the package is needed
    assert checkout.image() == image
    assert image.stat().st_mtime_ns == made_ns


def test_builds_at_the_same_time_share_one_result(checkout: Checkout) -> None:
    env = {"PATH": os.environ["PATH"], "WINDTUNNEL_CACHE": str(checkout.cache)}
    command: list[str | Path] = [checkout.folder / "kernel/build", SERIES]
    builds = [
        subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in "ab"
    ]
    results = [build.communicate() for build in builds]
    assert [build.returncode for build in builds] == [0, 0], results
    assert results[0][0] == results[1][0]
    assert sum("compiling" in complaints for _, complaints in results) == 1


def test_every_input_changes_the_hash(checkout: Checkout) -> None:
    hashes = [checkout.image().parent.name]
    checkout.port.write_text("int wt_kernel = 2;\n", encoding="utf-8")
    hashes.append(checkout.image().parent.name)
    (checkout.folder / "kernel/include/windtunnel/boundary.h").write_text("#define WT 3\n", encoding="utf-8")
    hashes.append(checkout.image().parent.name)
    current = checkout.cache / "kernels" / SERIES / "current"
    assert current.read_text(encoding="ascii").strip() == hashes[-1]
    hashes.append(checkout.image("--kcflags=-O1").parent.name)
    assert len(set(hashes)) == 4
    assert current.read_text(encoding="ascii").strip() == hashes[2], "a variant must not become current"


def test_kept_work_follows_the_checkout(checkout: Checkout) -> None:
    extra = checkout.port.with_name("extra.c")
    extra.write_text("int extra;\n", encoding="utf-8")
    checkout.image("--keep-work")
    copy = checkout.cache / "work" / SERIES / "source/arch/wt/extra.c"
    assert copy.exists()
    extra.unlink()
    checkout.image("--keep-work")
    assert not copy.exists()


def test_a_profile_reaches_the_compiler(checkout: Checkout) -> None:
    without = checkout.image("--keep-work")
    work = checkout.cache / "work" / SERIES
    assert "-fprofile-use" not in (work / "build.log").read_text(encoding="utf-8")
    stale = work / "build/stale.o"
    stale.touch()
    profile = checkout.folder / f"kernel/profile/{SERIES}.tar.xz"
    profile.parent.mkdir()
    with tarfile.open(profile, "w:xz") as tar:
        member = tarfile.TarInfo("net/ipv4/tcp.gcda")
        member.size = 6
        tar.addfile(member, io.BytesIO(b"counts"))
    profiled = checkout.image("--keep-work")
    assert profiled.parent.name != without.parent.name
    assert (work / "profile/net#ipv4#tcp.gcda").read_bytes() == b"counts"
    assert "-fprofile-use=../profile " in (work / "build.log").read_text(encoding="utf-8")
    assert not stale.exists(), "an object made with another profile"
    assert checkout.image("--instrument").parent.name not in {profiled.parent.name, without.parent.name}


def test_other_folders_give_the_same_bytes(checkout: Checkout) -> None:
    here = checkout.image()
    out = checkout.folder / "elsewhere"
    there = checkout.image("--rebuild", "--out", str(out), "--work", str(checkout.folder / "a/much/longer/path"))
    assert there.parent == out
    assert there.read_bytes() == here.read_bytes()


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ("echo 'int x;' >> init/main.c", "init/main.c differs"),
        ("rm init/main.c", "init/main.c is missing"),
        ("touch init/new.c", "init/new.c is not in the source package"),
        ("chmod -x script.sh", "script.sh has another mode"),
        ("ln -sf ../../script.sh arch/x86/link", "arch/x86/link is another link"),
    ],
)
def test_changed_generic_files_are_found(checkout: Checkout, change: str, complaint: str) -> None:
    work = checkout.folder / "work"
    checkout.image("--keep-work", "--work", str(work))
    assert checkout.build("--verify-source", "--work", str(work)).returncode == 0
    subprocess.run(["sh", "-c", change], cwd=work / "source", check=True)
    done = checkout.build("--verify-source", "--work", str(work))
    assert done.returncode == 1
    assert complaint in done.stderr


def test_a_failed_build_shows_the_error(checkout: Checkout) -> None:
    checkout.port.write_text("int broken = nonsense;\n", encoding="utf-8")
    done = checkout.build()
    assert done.returncode == 1
    assert "nonsense" in done.stderr
    assert "log: " in done.stderr
    assert not list((checkout.cache / "kernels" / SERIES).glob("*/liblinux-6.12.so"))
    assert done.stdout == ""


def test_a_cache_that_cannot_be_made(checkout: Checkout) -> None:
    command: list[str | Path] = [checkout.folder / "kernel/build", SERIES]
    env = {"PATH": os.environ["PATH"], "WINDTUNNEL_CACHE": str(checkout.port / "cache")}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "WINDTUNNEL_CACHE=DIR" in done.stderr
