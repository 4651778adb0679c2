# SPDX-License-Identifier: GPL-2.0-or-later
"""What `make dist` packs: complete, equal to what was built here, the same each time, and able to run by itself."""

import gzip
import io
import json
import os
import shutil
import subprocess
import tarfile
import tomllib
import venv
import xml.etree.ElementTree as ElementTree
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest
from conftest import ROOT, SERIES

VERSION = tomllib.loads((ROOT / "Cargo.toml").read_text(encoding="utf-8"))["workspace"]["package"]["version"]
WHEEL = f"windtunnel-{VERSION}-py3-none-manylinux_2_17_x86_64.whl"
DEB = f"windtunnel_{VERSION}_amd64.deb"
PING = """\
version: 1
name: two
run: {stop: 5s, seed: 1}
nodes:
  h1: {addresses: {eth0: 10.0.0.1/24}, processes: [{exec: ping -c 2 10.0.0.2, start: 1s}]}
  h2: {addresses: {eth0: 10.0.0.2/24}}
links: [{endpoints: ["h1:eth0", "h2:eth0"], both: {rate: 1Gbit, delay: 1ms}}]
"""


@dataclass(frozen=True)
class Packed:
    """Files of the wheel and the package by their path below the folder that they are installed in."""

    folder: Path
    wheel: dict[str, bytes]
    package: dict[str, bytes]
    modes: dict[str, int]


def pack(engine: Path, out: Path, **env: str) -> None:
    command: list[str | Path] = ["/usr/bin/python3", ROOT / "scripts/dist.py", engine, "--no-debug", "--out", out]
    done = subprocess.run(
        command, env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1", **env}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def packed(engine: Path, tmp_path_factory: pytest.TempPathFactory) -> Packed:
    folder = tmp_path_factory.mktemp("dist")
    pack(engine, folder)
    wheel, package, modes = {}, {}, {}
    with zipfile.ZipFile(folder / WHEEL) as archive:
        for info in archive.infolist():
            place = info.filename.removeprefix(f"windtunnel-{VERSION}.data/").removeprefix("data/")
            place = place.replace("scripts/", "bin/", 1) if place.startswith("scripts/") else place
            wheel[place] = archive.read(info)
            modes[place] = info.external_attr >> 16 & 0o777
    content = subprocess.run(["dpkg-deb", "--fsys-tarfile", folder / DEB], check=True, stdout=subprocess.PIPE).stdout
    with tarfile.open(fileobj=io.BytesIO(content)) as archive_tar:
        for member in archive_tar:
            file = archive_tar.extractfile(member)
            assert (member.uid, member.gid) == (0, 0)
            if file:
                place = member.name.removeprefix("./usr/").removeprefix("lib/python3/dist-packages/")
                package[place] = file.read()
                assert place not in modes or member.mode & 0o777 == modes[place], place
    return Packed(folder, wheel, package, modes)


@pytest.fixture(scope="module")
def installed(packed: Packed, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The virtual environment that the wheel was installed in."""
    folder = tmp_path_factory.mktemp("venv")
    venv.create(folder, with_pip=True)
    subprocess.run([folder / "bin/pip", "install", "-q", "--no-index", packed.folder / WHEEL], check=True)
    return folder


def call(program: Path, *arguments: str | Path, home: Path, **env: str) -> subprocess.CompletedProcess[str]:
    """With nothing of this user's but an empty home."""
    home.mkdir(exist_ok=True)
    return subprocess.run(
        [program, *arguments],
        env={"PATH": "/usr/bin:/bin", "HOME": str(home), **env},
        cwd=home,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def test_packed_twice_is_the_same(packed: Packed, engine: Path, tmp_path: Path) -> None:
    """At another time and place, in another time zone, by somebody with another umask."""
    (tmp_path / "temp").mkdir()
    before = os.umask(0o077)
    try:
        pack(engine, tmp_path / "again", TZ="Asia/Tokyo", LC_ALL="C", TMPDIR=str(tmp_path / "temp"), PYTHONHASHSEED="7")
    finally:
        os.umask(before)
    for name in (WHEEL, DEB):
        assert (tmp_path / "again" / name).read_bytes() == (packed.folder / name).read_bytes(), name


def test_wheel_and_package_hold_the_same(packed: Packed) -> None:
    common = {
        place: data for place, data in packed.wheel.items() if not place.startswith(f"windtunnel-{VERSION}.dist-info/")
    }
    # A service is the system's: what is installed by pip has none.
    service = {"lib/systemd/system/windtunnel-broker.service", "share/doc/windtunnel/examples/broker.toml"}
    assert set(packed.package) == set(common) | service
    # Names alone: some files are ten megabytes long.
    assert not [place for place, data in common.items() if packed.package[place] != data]
    assert b"ExecStart=/usr/bin/windtunnel broker" in packed.package["lib/systemd/system/windtunnel-broker.service"]
    assert {place for place in packed.wheel if place.startswith("windtunnel/")} >= {
        f"windtunnel/{name}" for name in ("__init__.py", "__main__.py", "_program.py", "py.typed", "VERSION")
    }
    for place in ("man/man1/windtunnel.1.gz", "man/man1/windtunnel-demo.1.gz", "doc/windtunnel/LICENSE"):
        assert packed.package[f"share/{place}"], place
    for place in ("bash-completion/completions/windtunnel", "zsh/vendor-completions/_windtunnel"):
        assert b"WINDTUNNEL_COMPLETE" in packed.package[f"share/{place}"], place
    assert packed.modes["bin/windtunnel"] == 0o755
    assert len(packed.package["bin/windtunnel"]) < 12_000_000
    assert (packed.folder / WHEEL).stat().st_size < 25_000_000


def test_systemd_takes_the_service(packed: Packed, tmp_path: Path) -> None:
    """As it is in the package, but for the place of the program."""
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not on this host; Debian's systemd has it")
    text = packed.package["lib/systemd/system/windtunnel-broker.service"].decode()
    assert packed.package["share/man/man1/windtunnel-broker.1.gz"], "which the unit names"
    unit = tmp_path / "windtunnel-broker.service"

    def complaints(text: str) -> str:
        unit.write_text(text.replace("/usr/bin/windtunnel", "/bin/true"), encoding="utf-8")
        # What it only ignores it says too, with an exit code of 0.
        return subprocess.run(
            ["systemd-analyze", "verify", "--man=no", str(unit)],
            check=False,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=60,
        ).stdout

    assert complaints(text) == ""
    assert "rwx" in complaints(text.replace("Mode=0755", "Mode=rwx"))


def test_the_kernel_is_the_built_one(packed: Packed, kernel: Path) -> None:
    record = json.loads((kernel.parent / "build.json").read_text(encoding="utf-8"))
    folder = f"lib/windtunnel/kernels/{SERIES}"
    assert packed.package[f"{folder}/{record['hash']}/{kernel.name}"] == kernel.read_bytes()
    assert packed.package[f"{folder}/current"].decode().strip() == record["hash"]
    text = packed.package["share/doc/windtunnel/kernel-source.txt"].decode()
    for value in (record["package"], record["version"], record["package_sha256"], record["image_sha256"]):
        assert value in text


def test_kernels_can_be_built_from_it(packed: Packed) -> None:
    """Every file of kernel/ is there, executable if it is here."""
    listed = subprocess.run(["git", "ls-files", "kernel"], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
    names = listed.stdout.split()
    shipped = {place for place in packed.package if place.startswith("lib/windtunnel/kernel/")}
    assert shipped == {f"lib/windtunnel/{name}" for name in names}
    for name in names:
        place = f"lib/windtunnel/{name}"
        assert packed.package[place] == (ROOT / name).read_bytes(), name
        assert packed.modes[place] == (0o755 if os.access(ROOT / name, os.X_OK) else 0o644), name


def test_every_crate_is_named_with_its_licence(packed: Packed) -> None:
    text = gzip.decompress(packed.package["share/doc/windtunnel/third-party-licences.txt.gz"]).decode()
    lock = tomllib.loads((ROOT / "Cargo.lock").read_text(encoding="utf-8"))
    assert len(lock["package"]) > 50
    for crate, licence in (("serde", "MIT OR Apache-2.0"), ("iced-x86", "MIT"), ("zerocopy", "BSD-2-Clause")):
        version = next(package["version"] for package in lock["package"] if package["name"] == crate)
        assert f"{crate} {version} ({licence}" in text
    for needed in ("GNU C library", "GCC RUNTIME LIBRARY EXCEPTION", "Rust's standard library"):
        assert needed.lower() in text.lower(), needed


def test_one_version_everywhere(packed: Packed, installed: Path, engine: Path) -> None:
    assert f"\nVersion: {VERSION}\n".encode() in packed.wheel[f"windtunnel-{VERSION}.dist-info/METADATA"]
    field = subprocess.run(
        ["dpkg-deb", "--field", packed.folder / DEB, "Version"], check=True, stdout=subprocess.PIPE, text=True
    )
    code = "import windtunnel; print(windtunnel.__version__)"
    home = installed / "home"
    said = [
        field.stdout,
        call(engine, "--version", home=home).stdout.removeprefix("windtunnel "),
        call(installed / "bin/windtunnel", "--version", home=home).stdout.removeprefix("windtunnel "),
        call(installed / "bin/python", "-c", code, home=home).stdout,
        call(installed / "bin/python", "-m", "windtunnel", "--version", home=home).stdout.removeprefix("windtunnel "),
        call(Path("/usr/bin/python3"), "-c", code, home=home, PYTHONPATH=f"{ROOT}/python").stdout,
    ]
    assert [text.strip() for text in said] == [VERSION] * len(said)


def test_python_finds_the_program(packed: Packed, installed: Path, tmp_path: Path) -> None:
    code = "from windtunnel._program import program, installed_files; print(program(), installed_files(), sep='\\n')"
    done = call(installed / "bin/python", "-c", code, home=tmp_path)
    assert done.stdout.split() == [f"{installed}/bin/windtunnel", f"{installed}/lib/windtunnel"]
    target = tmp_path / "target"
    pip: list[str | Path] = ["install", "-q", "--no-index", "--target", target, packed.folder / WHEEL]
    assert call(installed / "bin/pip", *pip, home=tmp_path).returncode == 0
    moved = call(Path("/usr/bin/python3"), "-c", code, home=tmp_path, PYTHONPATH=str(target))
    assert moved.stdout.split() == [f"{target}/bin/windtunnel", f"{target}/lib/windtunnel"]
    none = call(installed / "bin/python", "-m", "windtunnel", home=tmp_path, WINDTUNNEL_PROGRAM="/none")
    assert none.returncode == 1 and "WINDTUNNEL_PROGRAM names /none, which cannot be run" in none.stderr


def test_python_drives_what_was_installed(installed: Path, tmp_path: Path) -> None:
    """The package's own example."""
    code = "import doctest, sys, windtunnel; sys.exit(doctest.testmod(windtunnel).failed)"
    done = call(installed / "bin/python", "-c", code, home=tmp_path)
    assert done.returncode == 0, done.stdout


def test_runs_by_itself_like_the_checkout(packed: Packed, installed: Path, engine: Path, tmp_path: Path) -> None:
    """One digest from the wheel, the package and here, and the installed ones need no cache to find their kernel."""
    (tmp_path / "two.yaml").write_text(PING, encoding="utf-8")
    unpacked = tmp_path / "deb"
    subprocess.run(["dpkg-deb", "--extract", packed.folder / DEB, unpacked], check=True)
    digests = {}
    for name, program in (("wheel", installed / "bin/windtunnel"), ("package", unpacked / "usr/bin/windtunnel")):
        done = call(program, "run", "../two.yaml", "--out", "out", "--json", home=tmp_path / name)
        assert done.returncode == 0, done.stderr
        digests[name] = json.loads(done.stdout)["digest"]
    here = subprocess.run(
        [engine, "run", tmp_path / "two.yaml", "--out", tmp_path / "here", "--json"],
        check=True,
        stdout=subprocess.PIPE,
    )
    assert set(digests.values()) == {json.loads(here.stdout)["digest"]}


def test_the_package_has_verbs_in_python(packed: Packed, tmp_path: Path) -> None:
    """Debian's interpreter finds them where the package puts them; without them the verb says what it needs."""
    unpacked = tmp_path / "deb"
    subprocess.run(["dpkg-deb", "--extract", packed.folder / DEB, unpacked], check=True)
    (tmp_path / "two.yaml").write_text(PING, encoding="utf-8")
    program = unpacked / "usr/bin/windtunnel"
    env = {"WINDTUNNEL_PYTHON": "/usr/bin/python3"}
    with_it = {"PYTHONPATH": str(unpacked / "usr/lib/python3/dist-packages"), **env}
    done = call(program, "prompt", "two.yaml", home=tmp_path, **with_it)
    assert done.returncode == 0 and "windtunnel-results/two" in done.stdout, done.stderr
    alone = call(program, "prompt", "two.yaml", home=tmp_path, **env)
    assert alone.returncode == 2 and "error: this verb needs the Python package windtunnel" in alone.stderr
    assert "hint: pip install the wheel" in alone.stderr


def test_its_own_kernel_comes_first_and_undamaged(installed: Path, kernel: Path, tmp_path: Path) -> None:
    """Neither a cache nor half an upgrade takes its place; who names sources of their own gets what they built."""
    copy = tmp_path / "copy"
    for place in ("bin/windtunnel", "lib/windtunnel"):
        target = copy / place
        target.parent.mkdir(parents=True, exist_ok=True)
        (shutil.copytree if (installed / place).is_dir() else shutil.copy2)(installed / place, target)
    program, home, cache = copy / "bin/windtunnel", tmp_path / "home", tmp_path / "cache"
    (cache / "kernels" / SERIES / "abc").mkdir(parents=True)
    (cache / "kernels" / SERIES / "abc" / kernel.name).write_bytes(b"no kernel")
    (cache / "kernels" / SERIES / "current").write_text("abc\n", encoding="ascii")
    env = {"WINDTUNNEL_CACHE": str(cache)}
    (home / "two.yaml").parent.mkdir()
    (home / "two.yaml").write_text(PING, encoding="utf-8")
    listed = json.loads(call(program, "kernel", "list", "--json", home=home, **env).stdout)[0]["current"]
    assert listed["installed"] and listed["path"].startswith(f"{copy}/lib/windtunnel/kernels/")
    own = {**env, "WINDTUNNEL_KERNEL_DIR": f"{copy}/lib/windtunnel/kernel"}
    mine = json.loads(call(program, "kernel", "list", "--json", home=home, **own).stdout)[0]["current"]
    assert (mine["installed"], mine["hash"]) == (False, "abc")

    with Path(listed["path"]).open("r+b") as image:
        image.seek(-1, os.SEEK_END)
        last = image.read(1)[0]
        image.seek(-1, os.SEEK_END)
        image.write(bytes([last ^ 1]))
    refused = call(program, "run", "two.yaml", "--out", "out", home=home, **env)
    assert refused.returncode == 2 and not (home / "out").exists()
    assert f"error: the installed kernel {listed['path']} is damaged\n" in refused.stderr
    assert refused.stderr.endswith("hint: install windtunnel again\n")
    assert "MISSING  library kernel" in call(program, "doctor", home=home, **env).stdout


@pytest.mark.parametrize("interpreter", ["perl", "python3"])
def test_demo_ends_with_a_plot(installed: Path, tmp_path: Path, interpreter: str) -> None:
    program = installed / "bin/windtunnel"
    done = call(program, "demo", "--program", interpreter, home=tmp_path)
    assert done.returncode == 0, done.stderr
    out = tmp_path / "windtunnel-demo"
    for name in ("demo.yaml", "goodput.svg", "goodput.csv", "results"):
        assert f"windtunnel-demo/{name}" in done.stdout and (out / name).exists()
    paths = ElementTree.parse(out / "goodput.svg").iter("{http://www.w3.org/2000/svg}path")
    assert sum(path.get("stroke") in ("#0072B2", "#D55E00") for path in paths) == 2
    header, *lines = (out / "goodput.csv").read_text(encoding="ascii").splitlines()
    rows = [line.split(",") for line in lines]
    assert header == "flow,time_s,goodput_bps" and len(rows) > 100

    def mean_bps(flow: str, from_s: float, to_s: float) -> float:
        values = [float(bps) for name, time, bps in rows if name == flow and from_s < float(time) <= to_s]
        return sum(values) / len(values)

    # Both share the bottleneck; loss costs cubic most of its part; nobody gets more than the link carries.
    # (1 %: what comes before an interval may be read within it.)
    assert 17e6 < mean_bps("cubic", 3, 10) + mean_bps("bbr", 3, 10) < 20e6 * 1448 / 1538 * 1.01
    assert mean_bps("cubic", 12, 20) < mean_bps("cubic", 3, 10) / 2 and mean_bps("bbr", 12, 20) > 12e6
    again = call(program, "demo", "--program", interpreter, home=tmp_path)
    digest = [line for line in done.stdout.splitlines() if "digest" in line]
    assert digest and digest == [line for line in again.stdout.splitlines() if "digest" in line]

    (out / "demo.yaml").write_text("mine", encoding="ascii")
    refused = call(program, "demo", home=tmp_path)
    assert refused.returncode == 2 and "hint: name another folder: windtunnel demo --out DIR" in refused.stderr
    assert (out / "demo.yaml").read_text(encoding="ascii") == "mine"
