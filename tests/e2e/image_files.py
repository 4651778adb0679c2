# SPDX-License-Identifier: GPL-2.0-or-later
"""Makes small images, as the tools of others write them."""

import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

BUSYBOX = Path("/bin/busybox")
APPLETS = ("sh", "cat", "echo", "env", "id", "ip", "ls", "ping", "pwd", "stat", "sleep")
MTIME = 1_700_000_000


@dataclass(frozen=True)
class Member:
    """A file of a layer. With `target` a symbolic link, or a hard link; with neither text nor target a folder."""

    name: str
    text: bytes | None = None
    target: str | None = None
    hard: bool = False
    mode: int = 0o755
    uid: int = 0
    gid: int = 0


def tar(members: Sequence[Member]) -> bytes:
    """A plain tar."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for member in members:
            info = tarfile.TarInfo(member.name)
            info.mode, info.uid, info.gid, info.mtime = member.mode, member.uid, member.gid, MTIME
            info.linkname = member.target or ""
            if member.target is not None:
                info.type = tarfile.LNKTYPE if member.hard else tarfile.SYMTYPE
            elif member.text is None:
                info.type = tarfile.DIRTYPE
            info.size = len(member.text or b"")
            archive.addfile(info, io.BytesIO(member.text or b""))
    return buffer.getvalue()


def base() -> list[Member]:
    """A root with a shell, two users, and files of them that not everybody may read."""
    return [
        *(Member(name) for name in ("bin", "etc", "srv")),
        Member("root", mode=0o700),
        Member("home"),
        Member("home/web", mode=0o750, uid=33, gid=44),
        Member("bin/busybox", BUSYBOX.read_bytes()),
        *(Member(f"bin/{applet}", target="busybox") for applet in APPLETS),
        Member("etc/passwd", b"root:x:0:0::/root:/bin/sh\nweb:x:33:44::/home/web:/bin/sh\n", mode=0o644),
        Member("etc/group", b"root:x:0:\nweb:x:44:\n", mode=0o644),
        Member("etc/shadow", b"root's secret\n", mode=0o640, gid=42),
        Member("home/web/key", b"web's secret\n", mode=0o600, uid=33, gid=44),
        Member("srv/old", b"old\n", mode=0o644),
        Member("srv/kept", b"kept\n", mode=0o644),
        Member("srv/also-kept", target="srv/kept", hard=True),
        Member("data/one", b"1\n"),
    ]


def upper() -> list[Member]:
    """A layer that replaces, takes away and adds."""
    return [
        Member("srv/.wh.old", b""),
        Member("srv/kept", b"changed\n", mode=0o644),
        Member("data", mode=0o755),
        Member("data/.wh..wh..opq", b""),
        Member("data/two", b"2\n", mode=0o4755),
    ]


def merged() -> list[Member]:
    """What the two layers are on top of each other."""
    gone = ("srv/old", "data/one", "srv/kept", "srv/also-kept")
    rest = [member for member in base() if member.name not in gone]
    news = [member for member in upper() if ".wh." not in member.name]
    return [*rest, Member("srv/also-kept", b"kept\n", mode=0o644), *news]


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def config(layers: Sequence[bytes], programs: Mapping[str, Any], architecture: str = "amd64") -> bytes:
    """An image's configuration."""
    rootfs = {"type": "layers", "diff_ids": [f"sha256:{digest(layer)}" for layer in layers]}
    document = {"architecture": architecture, "os": "linux", "config": programs, "rootfs": rootfs}
    return json.dumps(document, sort_keys=True).encode()


def docker_save(path: Path, images: Mapping[str, tuple[Sequence[bytes], bytes]]) -> None:
    """What `docker save` wrote until it changed to OCI layouts: name -> layers and configuration."""
    members, manifest = [], []
    for name, (layers, conf) in images.items():
        members.append(Member(f"{digest(conf)}.json", conf))
        for layer in layers:
            members.append(Member(f"{digest(layer)}/layer.tar", layer))
        manifest.append(
            {
                "Config": f"{digest(conf)}.json",
                "RepoTags": [name],
                "Layers": [f"{digest(layer)}/layer.tar" for layer in layers],
            }
        )
    path.write_bytes(tar([*members, Member("manifest.json", json.dumps(manifest).encode())]))


def oci_files(layers: Sequence[bytes], conf: bytes, name: str | None = None, damage: str = "") -> dict[str, bytes]:
    """The files of an OCI image layout with gzip layers behind an index of platforms. `damage`: which blob is not what
    its digest says."""
    blobs: dict[str, bytes] = {}

    def blob(data: bytes, kind: str, stored: bytes | None = None, **more: Any) -> dict[str, Any]:
        blobs[f"blobs/sha256/{digest(data)}"] = data if stored is None else stored
        return {"mediaType": kind, "digest": f"sha256:{digest(data)}", "size": len(data), **more}

    media = "application/vnd.oci.image"
    packed = [gzip.compress(layer, mtime=0) for layer in layers]
    other = gzip.compress(tar([Member("other")]), mtime=0)
    descriptors = [
        blob(layer, f"{media}.layer.v1.tar+gzip", other if damage == "layer" and number == 0 else None)
        for number, layer in enumerate(packed)
    ]
    manifest = {
        "schemaVersion": 2,
        "config": blob(conf, f"{media}.config.v1+json", b"{}" if damage == "config" else None),
        "layers": descriptors,
    }
    arm = {"architecture": "arm64", "os": "linux"}
    ours = {"architecture": "amd64", "os": "linux"}
    platforms = [
        {"mediaType": f"{media}.manifest.v1+json", "digest": f"sha256:{'0' * 64}", "size": 1, "platform": arm},
        blob(json.dumps(manifest).encode(), f"{media}.manifest.v1+json", platform=ours),
    ]
    inner = blob(json.dumps({"schemaVersion": 2, "manifests": platforms}).encode(), f"{media}.index.v1+json")
    if name:
        inner["annotations"] = {"org.opencontainers.image.ref.name": name}
    index = {"schemaVersion": 2, "manifests": [inner]}
    return {
        "oci-layout": b'{"imageLayoutVersion": "1.0.0"}',
        "index.json": json.dumps(index).encode(),
        **blobs,
    }


def oci_folder(path: Path, files: Mapping[str, bytes]) -> None:
    for name, data in files.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(data)


def oci_tar(path: Path, files: Mapping[str, bytes]) -> None:
    path.write_bytes(tar([Member(name, data) for name, data in files.items()]))
