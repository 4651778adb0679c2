# SPDX-License-Identifier: GPL-2.0-or-later
"""Nodes whose root is a folder or an image: what they see, and that the host does not show through."""

import fcntl
import gzip
import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import image_files as images
import pytest
from conftest import Program, cache_with
from elsewhere import Elsewhere
from hosts import Outcome
from image_files import Member
from scenarios import Mapping

NEEDS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become another user")
PROGRAMS = {
    "Env": ["PATH=/bin", "COLOUR=blue"],
    "User": "web",
    "WorkingDir": "/srv",
    "Entrypoint": ["/bin/sh", "-c"],
    "Cmd": ["id; pwd; echo $COLOUR $HOME"],
}
LOOK = (
    "stat -c '%n %a %u %g %s %Y' /etc/shadow /home/web /home/web/key /srv/kept /srv/also-kept /data/* /srv/*; "
    "cat /etc/shadow /home/web/key /srv/also-kept /etc/hostname; ls / /bin /home /tmp"
)


def scenario(root: object, *programs: Mapping) -> Mapping:
    """Two nodes of that root; h1 runs the programs."""
    return {
        "version": 1,
        "run": {"stop": "10s", "capture": "all"},
        "defaults": {"node": {"root": root}, "link": {"rate": "1Gbit", "delay": "1ms"}},
        "nodes": {
            "h1": {
                "addresses": {"eth0": "10.0.0.1/24"},
                "setup": ["ip link set lo up"],
                "processes": [{"exec": ["sh", "-c", LOOK], "user": "root", "expect": "any"}, *programs],
            },
            "h2": {"addresses": {"eth0": "10.0.0.2/24"}},
        },
        "links": [{"endpoints": ["h1:eth0", "h2:eth0"]}],
    }


def layers() -> list[bytes]:
    return [images.tar(images.base()), images.tar(images.upper())]


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """Images in every format, readable by everybody."""
    with tempfile.TemporaryDirectory() as name:
        path = Path(name)
        path.chmod(0o755)
        plain = images.tar(images.merged())
        (path / "root.tar").write_bytes(plain)
        (path / "root.tar.gz").write_bytes(gzip.compress(plain))
        conf = images.config(layers(), PROGRAMS)
        images.docker_save(path / "docker.tar", {"web:1": (layers(), conf)})
        (path / "docker.tar.gz").write_bytes(gzip.compress((path / "docker.tar").read_bytes()))
        images.oci_folder(path / "oci", images.oci_files(layers(), conf, "web:1"))
        images.oci_tar(path / "oci.tar", images.oci_files(layers(), conf, "web:1"))
        yield path


class Runner:
    """Runs scenarios with one cache of images."""

    def __init__(self, engine: Path, kernel: Path, folder: Path) -> None:
        self.engine, self.folder, self.runs = engine, folder, 0
        self.cache = cache_with(kernel, folder / "cache")

    def attempt(
        self,
        text: Mapping,
        *options: str,
        verb: str = "run",
        prefix: list[str] | None = None,
        env: Mapping | None = None,
    ) -> Program:
        self.runs += 1
        file = self.folder / f"{self.runs}.yaml"
        file.write_text(json.dumps(text), encoding="utf-8")
        out = ["--out", str(self.folder / f"out{self.runs}")] if verb == "run" else []
        done = subprocess.run(
            [*(prefix or []), self.engine, verb, file, *out, *options],
            env={**os.environ, **(env or {}), "WINDTUNNEL_CACHE": str(self.cache)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        return Program(done.returncode, done.stdout, done.stderr)

    def run(self, text: Mapping) -> dict[str, Any]:
        done = self.attempt(text, "--json")
        assert done.code == 0, done.stderr + done.stdout
        summary: dict[str, Any] = json.loads(done.stdout)
        return summary

    def outcome(self, text: Mapping, host: Elsewhere | None = None) -> Outcome:
        """What a run leaves, on this host or another."""
        host = host or Elsewhere([], {})
        done = self.attempt(text, "--quiet", prefix=host.prefix, env=host.env)
        assert done.code == 0, done.stderr
        return Outcome.of(self.folder / f"out{self.runs}")

    def stdout(self, summary: Mapping, index: int) -> str:
        rows = [row for row in summary["processes"] if row["node"] == "h1"]
        name: str = rows[index]["stdout"]
        return (self.folder / f"out{self.runs}" / name).read_text(encoding="utf-8")

    def manifest(self) -> Any:
        return json.loads((self.folder / f"out{self.runs}" / "manifest.json").read_text(encoding="utf-8"))


@pytest.fixture
def runner(engine: Path, kernel: Path, tmp_path: Path) -> Runner:
    return Runner(engine, kernel, tmp_path)


def test_all_formats_are_the_same_root(runner: Runner, folder: Path) -> None:
    ping: Mapping = {"exec": "/bin/ping -c 1 h2", "user": "root"}
    digests = set()
    for name in ("root.tar", "root.tar.gz", "docker.tar", "docker.tar.gz", "oci", "oci.tar"):
        # The environment and the user of the image would make a difference that is meant.
        text = scenario(str(folder / name), ping)
        for process in text["nodes"]["h1"]["processes"]:
            process |= {"env": {"PATH": "/bin", "COLOUR": "blue"}, "cwd": "/", "user": "root"}
        summary = runner.run(text)
        digests.add(summary["digest"])
        seen = runner.stdout(summary, 0)
        assert seen.splitlines()[:8] == [
            f"/etc/shadow 640 0 42 14 {images.MTIME}",
            f"/home/web 750 33 44 4096 {images.MTIME}",
            f"/home/web/key 600 33 44 13 {images.MTIME}",
            f"/srv/kept 644 0 0 8 {images.MTIME}",
            f"/srv/also-kept 644 0 0 5 {images.MTIME}",
            f"/data/two 4755 0 0 2 {images.MTIME}",
            f"/srv/also-kept 644 0 0 5 {images.MTIME}",
            f"/srv/kept 644 0 0 8 {images.MTIME}",
        ], "no data/one, which an opaque folder hides, and no srv/old, which a whiteout takes away"
        assert "root's secret\nweb's secret\nkept\nh1\n" in seen
        assert "1 packets received" in runner.stdout(summary, 1)
    assert len(digests) == 1


def test_an_image_says_how_its_programs_run(runner: Runner, folder: Path) -> None:
    own: Mapping = {"exec": ["sh", "-c", "id; pwd; echo $COLOUR $HOME"]}
    other: Mapping = {**own, "user": "0:0", "cwd": "/bin", "env": {"COLOUR": "red"}}
    summary = runner.run(scenario(str(folder / "docker.tar"), {}, {"args": ["echo instead"]}, own, other))
    by_image = "uid=33(web) gid=44(web)\n/srv\nblue /home/web\n"
    found = [runner.stdout(summary, index) for index in range(1, 5)]
    assert found == [by_image, "instead\n", by_image, "uid=0(root) gid=0(root)\n/bin\nred /root\n"]
    assert summary["processes"][1]["command"] == ["/bin/sh", "-c", "id; pwd; echo $COLOUR $HOME"]
    # The tar of a root says nothing.
    failed = runner.attempt(scenario(str(folder / "root.tar"), {}))
    assert (
        failed.code == 2
        and "neither ENTRYPOINT nor CMD" in failed.stderr
        and "hint: give the process `exec`" in failed.stderr
    )


def make_root(root: Path) -> Path:
    """A folder with a shell and a secret of root's."""
    for name in ("bin", "etc", "root"):
        (root / name).mkdir(parents=True)
    shutil.copy(images.BUSYBOX, root / "bin/busybox")
    for applet in images.APPLETS:
        (root / "bin" / applet).symlink_to("busybox")
    (root / "root").chmod(0o700)
    (root / "root/key").write_text("secret\n", encoding="ascii")
    (root / "root/key").chmod(0o600)
    (root / "etc/hostname").write_text("of the folder\n", encoding="ascii")
    for path in (root, *root.rglob("*")):
        os.utime(path, (images.MTIME, images.MTIME), follow_symlinks=False)
    return root


def test_a_folder_is_a_root_as_it_is(runner: Runner, tmp_path: Path) -> None:
    look = {"exec": ["sh", "-c", "ls /; stat -c '%n %a %u %g' /root/key; cat /root/key /etc/hostname"]}
    as_other = {"exec": "cat /root/key", "user": "1000", "expect": {"exit": 1}}
    text = scenario(str(make_root(tmp_path / "a root")), look, as_other)
    summary = runner.run(text)
    expected = "bin\ndev\netc\nproc\nroot\nrun\nsys\ntmp\n/root/key 600 0 0\nsecret\nh1\n"
    assert runner.stdout(summary, 1) == expected


def test_images_are_chosen_by_name(runner: Runner, tmp_path: Path) -> None:
    one, two = ([images.tar([*images.base(), Member("which", text)])] for text in (b"one\n", b"two\n"))
    archive = tmp_path / "all.tar"
    images.docker_save(
        archive, {"web:1": (one, images.config(one, {})), "docker.io/library/web:latest": (two, images.config(two, {}))}
    )
    for name, expected in (("web:1", "one\n"), ("web", "two\n")):
        text = scenario({"image": str(archive), "name": name}, {"exec": "cat /which"})
        summary = runner.run(text)
        assert runner.stdout(summary, 1) == expected
    failed = runner.attempt(scenario(str(archive)))
    assert failed.code == 2
    assert "it holds 2 images: web:1, docker.io/library/web:latest" in failed.stderr
    assert 'hint: say which, as in {image: FILE, name: "web:1"}' in failed.stderr
    failed = runner.attempt(scenario({"image": str(archive), "name": "web:2"}))
    assert "it has no image `web:2`; there is web:1, docker.io/library/web:latest" in failed.stderr


def test_what_is_no_image_is_refused_in_words(runner: Runner, folder: Path, tmp_path: Path) -> None:
    conf = images.config(layers(), PROGRAMS)
    (tmp_path / "text").write_text("hello\n" * 1000, encoding="ascii")
    (tmp_path / "cut.tar").write_bytes((folder / "root.tar").read_bytes()[:5000])
    (tmp_path / "escape.tar").write_bytes(images.tar([Member("../../../escaped", b"x")]))
    images.docker_save(tmp_path / "arm.tar", {"web:1": (layers(), images.config(layers(), {}, "arm64"))})
    for damage in ("layer", "config"):
        images.oci_tar(tmp_path / f"{damage}.tar", images.oci_files(layers(), conf, damage=damage))
    swapped = [layers()[0], images.tar([Member("x", b"x")])]
    images.docker_save(tmp_path / "swapped.tar", {"web:1": (swapped, conf)})
    cases = {
        "nothing.tar": ("there is no such file or folder", "relative paths count from the scenario file's folder"),
        "text": ("it does not begin with a tar's header", "a root is a folder, the tar of one"),
        "cut.tar": ("the archive is cut off", ""),
        "escape.tar": ("the path `../../../escaped` leads out of the archive", ""),
        "arm.tar": ("it is for linux/arm64; nodes run linux/amd64", "docker pull --platform linux/amd64"),
        "layer.tar": ("layer 1 of 2", "get or make the image once more"),
        "config.tar": ("its configuration is damaged: its SHA-256 is", "get or make the image once more"),
        "swapped.tar": ("layer 2 of 2", "get or make the image once more"),
    }
    for name, (what, hint) in cases.items():
        failed = runner.attempt(scenario(str(tmp_path / name)))
        assert failed.code == 2 and f"node h1: {tmp_path / name} cannot be its root: " in failed.stderr, failed.stderr
        assert what in failed.stderr and hint in failed.stderr, failed.stderr
        assert not list(tmp_path.glob("**/escaped")) and not (runner.folder / f"out{runner.runs}").exists()
    left = [path.name for path in (runner.cache / "images").iterdir()]
    assert left == [".lock"], "nothing half done is left"
    # What can be seen without unpacking, validate sees.
    for name in ("nothing.tar", "text", "arm.tar", "config.tar"):
        failed = runner.attempt(scenario(str(tmp_path / name)), verb="validate")
        assert failed.code == 2 and cases[name][0] in failed.stderr, failed.stderr
    failed = runner.attempt(scenario(str(tmp_path / "arm.tar")), "--json", verb="validate")
    assert json.loads(failed.stdout)["errors"][0]["hint"].startswith("with Docker")


@NEEDS_ROOT
def test_the_same_root_on_another_users_machine_is_the_same_run(
    engine: Path, kernel: Path, folder: Path, runner: Runner, elsewhere: Elsewhere, tmp_path: Path
) -> None:
    """Another machine, user, place and packing of the same image, and a folder that another user owns."""
    look: Mapping = {
        "exec": ["sh", "-c", "cat /home/web/key /root/key; ls -l /srv /root"],
        "user": "0",
        "expect": "any",
    }
    ping: Mapping = {"exec": ["/bin/ping", "-c", "1", "h2"], "user": "0"}
    plain = make_root(tmp_path / "plain")
    roots = {"docker.tar": "moved/image.tar.gz", "oci": "moved/image", "root.tar": "moved/root.tar.gz"}
    moved = {folder / name: target for name, target in roots.items()} | {plain: "moved/plain"}
    with tempfile.TemporaryDirectory() as name:
        away = Path(name)
        shutil.copy(engine, away / "windtunnel")
        there = Runner(away / "windtunnel", kernel, away)
        shutil.copytree(folder / "oci", away / "moved/image")
        shutil.copytree(plain, away / "moved/plain", symlinks=True)
        shutil.copy(folder / "docker.tar.gz", away / "moved/image.tar.gz")
        shutil.copy(folder / "root.tar.gz", away / "moved/root.tar.gz")
        subprocess.run(["chown", "-Rh", "65534:65534", name], check=True)
        for here, target in moved.items():
            here_out = runner.outcome(scenario(str(here), look, ping))
            there_out = there.outcome(scenario(str(away / target), look, ping), elsewhere)
            there_out.assert_equal(here_out)
            assert "1 packets received" in there_out.stdout("h1", 2)
            # What the image is, not where it lies or how it is packed.
            first, second = ([root["sha256"] for root in out.manifest["roots"]] for out in (here_out, there_out))
            packed = target.endswith(".gz") and here.name == "root.tar"
            assert (first == second) != packed, (here, first, second)


def test_two_runs_at_once_unpack_one_image(runner: Runner, folder: Path) -> None:
    file = runner.folder / "both.yaml"
    file.write_text(json.dumps(scenario(str(folder / "docker.tar"))), encoding="utf-8")
    commands: list[list[str | Path]] = [
        [runner.engine, "run", file, "--out", runner.folder / f"both{n}", "--json"] for n in range(3)
    ]
    env = {**os.environ, "WINDTUNNEL_CACHE": str(runner.cache)}
    running = [
        subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE) for command in commands
    ]
    ends = [(process.communicate(timeout=120), process.returncode) for process in running]
    assert [code for _, code in ends] == [0, 0, 0], ends
    assert len({json.loads(out)["digest"] for (out, _), _ in ends}) == 1
    kept = [path for path in (runner.cache / "images").iterdir() if path.is_dir()]
    assert len(kept) == 1


def test_the_manifest_names_every_root(runner: Runner, folder: Path) -> None:
    conf = images.config(layers(), PROGRAMS)
    text = scenario({"image": str(folder / "oci.tar"), "name": "web:1"})
    text["nodes"]["h3"] = {"root": str(folder / "root.tar")}
    text["nodes"]["h4"] = {"root": "host"}
    runner.run(text)
    tar_hash = images.digest((folder / "root.tar").read_bytes())
    assert runner.manifest()["roots"] == [
        {
            "kind": "oci",
            "path": str(folder / "oci.tar"),
            "name": "web:1",
            "sha256": images.digest(conf),
            "nodes": ["h1", "h2"],
        },
        {"kind": "tar", "path": str(folder / "root.tar"), "name": None, "sha256": tar_hash, "nodes": ["h3"]},
        {"kind": "host", "path": "/", "name": None, "sha256": None, "nodes": ["h4"]},
    ]


@NEEDS_ROOT
def test_a_run_on_an_image_needs_no_file_of_the_host(
    engine: Path, runner: Runner, folder: Path, tmp_path: Path
) -> None:
    """In a root that holds nothing but the program, its cache, the scenario, the image and /proc."""
    text = scenario(
        "/in/oci", {}, {"exec": "ping -c 1 h2", "user": "0"}, {"exec": "nothing-of-that-name", "expect": "any"}
    )
    del text["nodes"]["h1"]["processes"][3]
    expected = runner.run({**text, "defaults": {**text["defaults"], "node": {"root": str(folder / "oci")}}})["digest"]
    bare = tmp_path / "bare"
    for name in ("in", "out", "proc", "cache"):
        (bare / name).mkdir(parents=True)
    shutil.copy(engine, bare / "windtunnel")
    shutil.copytree(folder / "oci", bare / "in/oci")
    shutil.copytree(runner.cache / "kernels", bare / "cache/kernels")
    (bare / "in/test.yaml").write_text(json.dumps(text), encoding="utf-8")
    inside = "mount -t proc proc proc && exec chroot . /windtunnel run /in/test.yaml --out /out/run --json"
    done = subprocess.run(
        ["unshare", "--mount", "--pid", "--fork", "sh", "-c", inside],
        cwd=bare,
        env={"WINDTUNNEL_CACHE": "/cache", "PATH": os.environ["PATH"]},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["digest"] == expected


def test_a_run_on_an_image_opens_no_file_of_the_host(
    engine: Path, runner: Runner, folder: Path, tmp_path: Path
) -> None:
    """Whatever is there: by the system calls that the program makes."""
    trace = tmp_path / "trace"
    calls = "open,openat,openat2,stat,lstat,newfstatat,statx,readlink,readlinkat,access,faccessat,faccessat2,execve"
    strace = ["strace", "-f", "-qq", "-e", f"trace={calls}", "-s", "300", "-o", str(trace)]
    ping: Mapping = {"exec": "ping -c 1 h2", "user": "0"}
    done = runner.attempt(scenario(str(folder / "docker.tar"), {}, ping), prefix=strace)
    assert done.code == 0, done.stderr
    opened = {match[1] for match in re.finditer(r'"(/[^"]*)"', trace.read_text(encoding="utf-8", errors="replace"))}
    assert any(path.startswith(str(runner.cache / "images")) for path in opened), "the image is read"
    places = ("/bin", "/etc", "/home", "/lib", "/opt", "/root", "/sbin", "/srv", "/usr", "/var")
    outside = {path for path in opened if not path.startswith((str(engine), str(runner.folder), str(folder)))}
    # Where the program itself lies, and what is installed with it, which no node sees either.
    own = {str(path) for path in [*engine.parents, engine.parents[1] / "lib/windtunnel"]}
    outside -= own
    # The manifest tells what host it was; no node sees that.
    assert {path for path in outside if path.startswith(places)} <= {"/etc/os-release"}


def test_the_cache_is_listed_and_pruned(runner: Runner, folder: Path, attempt: Callable[..., Program]) -> None:
    env = {"WINDTUNNEL_CACHE": str(runner.cache)}
    assert attempt("image", "list", **env) == Program(0, "", "")
    assert attempt("image", "prune", **env).stdout == "0 images removed, 0 MiB\n"
    runner.run(scenario(str(folder / "root.tar")))
    rows = json.loads(attempt("image", "list", "--json", **env).stdout)
    assert [(row["kind"], row["origin"]) for row in rows] == [("tar", str(folder / "root.tar"))]
    assert rows[0]["sha256"][:12] in attempt("image", "list", **env).stdout
    # What was left behind by a run that was killed goes, what a run uses stays.
    (runner.cache / "images/.unfinished-1-0").mkdir()
    used = os.open(rows[0]["folder"], os.O_RDONLY)
    fcntl.flock(used, fcntl.LOCK_SH)
    assert attempt("image", "prune", **env).stdout == "0 images removed, 0 MiB; 1 in use stay\n"
    os.close(used)
    assert attempt("image", "prune", **env).stdout.startswith("1 images removed, ")
    assert [path.name for path in (runner.cache / "images").iterdir()] == [".lock"]
    # A cache that was damaged is made anew.
    digest = runner.run(scenario(str(folder / "root.tar")))["digest"]
    index = next((runner.cache / "images").glob("*/index"))
    index.write_bytes(index.read_bytes()[:-1])
    assert runner.run(scenario(str(folder / "root.tar")))["digest"] == digest


def test_why_no_image_can_be_built(attempt: Callable[..., Program], tmp_path: Path) -> None:
    out = tmp_path / "web.tar"
    failed = attempt("image", "build", "-o", out, "--packages", "curl", PATH=str(tmp_path))
    assert failed.code == 2 and "mmdebstrap is not installed\nhint: apt install mmdebstrap" in failed.stderr
    failed = attempt("image", "build", "-o", out, "--packages", "curl,--aptopt=x")
    assert failed.code == 2 and "`--aptopt=x` cannot be the name of a package" in failed.stderr
    assert list(tmp_path.iterdir()) == []
    out.write_text("mine", encoding="ascii")
    failed = attempt("image", "build", "-o", out, "--packages", "curl")
    assert failed.code == 2 and "is there already\nhint: `--force` replaces it" in failed.stderr
    assert out.read_text(encoding="ascii") == "mine"


@pytest.mark.full
def test_an_image_of_packages_is_the_same_twice(
    runner: Runner, attempt: Callable[..., Program], tmp_path: Path
) -> None:
    built = []
    for name, packages in (("one.tar", "iputils-ping,busybox-static"), ("two.tar", "busybox-static,iputils-ping")):
        done = subprocess.run(
            [runner.engine, "image", "build", "-o", tmp_path / name, "--packages", packages, "--json"],
            capture_output=True,
            text=True,
            check=True,
        )
        built.append(json.loads(done.stdout))
    assert built[0]["sha256"] == built[1]["sha256"] == images.digest((tmp_path / "two.tar").read_bytes())
    assert {"busybox-static", "iputils-ping", "libc6"} <= {package["name"] for package in built[0]["packages"]}
    text = scenario(str(tmp_path / "one.tar"), {"exec": "ping -c 1 h2"})
    text["nodes"]["h1"]["setup"] = ["busybox ip link set lo up"]
    assert "1 received" in runner.stdout(runner.run(text), 1)
    assert runner.manifest()["roots"][0]["sha256"] == built[0]["sha256"]
