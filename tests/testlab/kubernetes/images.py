"""Images of pods without a registry: busybox, and the add-ons' own programs under the names of their images."""

import hashlib
import io
import json
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from types import MappingProxyType

from bedplate.catalog.catalog import load_addons
from bedplate.kubernetes.addons import choose_pins
from bedplate.plan.cluster import ClusterPlan

IMAGE, PYTHON_IMAGE, FOREIGN_IMAGE = "localhost/waits:1", "localhost/python:1", "localhost/foreign:1"
_UNUSED = frozenset(("__pycache__", "test", "idlelib", "tkinter", "lib2to3", "ensurepip"))
# A container's first process ignores signals without a handler.
_WAIT = ("sh", "-c", "trap 'exit 0' TERM INT; sleep infinity & wait")
# flannel's CNI plugin is not on the Go module proxy: this one asks Debian's bridge for the same, without a cache.
_FLANNEL_CNI = """#!/usr/bin/python3
import ipaddress, json, subprocess, sys
conf = json.load(sys.stdin)
with open("/run/flannel/subnet.env") as stream:
    values = dict(line.strip().split("=") for line in stream)
subnet = str(ipaddress.ip_interface(values["FLANNEL_SUBNET"]).network)
ipam = {"type": "host-local", "ranges": [[{"subnet": subnet}]], "routes": [{"dst": values["FLANNEL_NETWORK"]}]}
bridge = {**conf["delegate"], "cniVersion": conf["cniVersion"], "name": conf["name"], "type": "bridge", "ipam": ipam,
          "isGateway": True, "ipMasq": values["FLANNEL_IPMASQ"] != "true", "mtu": int(values["FLANNEL_MTU"])}
sys.exit(subprocess.run(["/opt/cni/bin/bridge"], input=json.dumps(bridge).encode()).returncode)
"""
_COPY = '#!/bin/sh\ncp -f "$@"\n'
Files = Mapping[str, Path | str]


def pod_image(folder: Path) -> Path:
    """Write an archive with the image of tests' pods: it waits for its end. Everybody is in its group 0."""
    people = ",".join(f"u{uid}" for uid in range(20000, 20010))
    users = "".join(f"u{uid}:x:{uid}:{uid}::/:/bin/sh\n" for uid in range(20000, 20010))
    files = {"etc/passwd": users, "etc/group": f"root:x:0:{people}\n"}
    return _write(folder / "pod.tar", IMAGE, files, {"Entrypoint": [*_WAIT], "User": "65535:65535"})


def python_image(
    folder: Path,
    variables: Mapping[str, str] = MappingProxyType({}),
    packages: Sequence[str] = (),
    programs: Sequence[Path] = (),
) -> Path:
    """Write an archive with an image that has this machine's Python, more variables, and no user of the fleet.

    It also has packages of the tests' environment by their names, and programs with their libraries.
    """
    modules = Path(f"/usr/lib/python{sys.version_info[0]}.{sys.version_info[1]}")
    sources = (path for path in modules.rglob("*.py") if not _UNUSED & set(path.parts))
    files: dict[str, Path | str] = {str(path).lstrip("/"): path for path in sources}
    for program in programs:
        files |= {f"bin/{program.name}": program, **_libraries(program)}
    for path in (modules / "lib-dynload").iterdir():
        files |= {str(path).lstrip("/"): path, **_libraries(path)}
    for package in packages:
        for file in metadata.files(package) or ():
            path = Path(str(file.locate()))
            if ".." not in file.parts and "tests" not in file.parts and path.suffix != ".pyc":
                files |= {f"usr/lib/packages/{file}": path, **(_libraries(path) if ".so" in path.suffixes else {})}
    values = {"PATH": "/bin", "PYTHONHOME": "/usr", "PYTHONDONTWRITEBYTECODE": "1", **variables}
    values |= {"PYTHONPATH": "/usr/lib/packages"} if packages else {}
    environment = [f"{name}={value}" for name, value in values.items()]
    # Python itself is a link.
    return _write(folder / "python.tar", PYTHON_IMAGE, {**files, **_with_libraries("python3")}, {"Env": environment})


def foreign_image(folder: Path) -> Path:
    """Write an archive with an image whose Python is a program for 64-bit ARM."""
    program = folder / "python3"
    # ELF, 64 bits, little endian, version 1; an executable for machine 183.
    program.write_bytes(b"\x7fELF\2\1\1" + bytes(9) + b"\2\0\xb7\0\1\0\0\0" + bytes(40))
    return _write(folder / "foreign.tar", FOREIGN_IMAGE, {"bin/python3": program}, {})


def addon_images(programs: Path, cluster: ClusterPlan, folder: Path) -> list[Path]:
    """Write archives with the images of the add-ons that can run: flannel, kube-proxy and CoreDNS."""
    nft = _with_libraries("nft")
    # flannel removes rules of iptables, too.
    iptables = {**_with_libraries("iptables"), **_with_libraries("ip6tables"), **_extensions()}
    contents: Mapping[str, Files] = {
        "flannel-cni-plugin": {"flannel": _FLANNEL_CNI},
        "flannel": {"opt/bin/flanneld": programs / "flannel", "opt/bin/install-conf": _COPY, **nft, **iptables},
        "kube-proxy": {"bin/kube-proxy": programs / "kube", **nft},
        "coredns": {"coredns": programs / "coredns"},
    }
    images = [image for addon in choose_pins(load_addons(), cluster).values() for image in addon.images]
    names = {image.rpartition("/")[2].partition(":")[0]: image for image in images}
    return [
        _write(folder / f"{name}.tar", names[name], files, {"Entrypoint": [f"/{name}"]})
        for name, files in contents.items()
    ]


def _extensions() -> Files:
    """Return the matches and targets of iptables, by their paths in an image."""
    (folder,) = Path("/usr/lib").glob("*/xtables")
    return {str(path).lstrip("/"): path for path in folder.iterdir()}


def _with_libraries(program: str) -> Files:
    """Return a program and the libraries that it loads, by their paths in an image.

    busybox must have some: without glibc's libraries the package busybox-static cannot resolve names.
    """
    path = Path(f"/usr/bin/{program}") if program == "python3" else Path(shutil.which(program) or program)
    return {f"bin/{program}": path, **_libraries(path)}


def _libraries(path: Path) -> Files:
    libraries = re.findall(r"/\S+", subprocess.run(("ldd", path), capture_output=True, text=True, check=True).stdout)
    return {library.lstrip("/"): Path(library) for library in libraries}


def _write(archive: Path, image: str, files: Files, start: Mapping[str, object]) -> Path:
    """Write an image of one layer, in the format of `docker save`."""
    layer = _tar({**_with_libraries("busybox"), **files}, _applets())
    digest = hashlib.sha256(layer).hexdigest()
    config = json.dumps(
        {
            "architecture": "amd64",
            "os": "linux",
            "config": {"Env": ["PATH=/bin"], **start},
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
        }
    )
    manifest = json.dumps([{"Config": "config.json", "RepoTags": [image], "Layers": ["layer.tar"]}])
    archive.write_bytes(_tar({"config.json": config, "manifest.json": manifest, "layer.tar": layer}))
    return archive


def _applets() -> list[str]:
    listed = subprocess.run(("busybox", "--list"), capture_output=True, text=True, check=True).stdout.split()
    return [f"bin/{name}" for name in listed if name != "busybox"]


def _tar(files: Mapping[str, Path | str | bytes], links: Sequence[str] = ()) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            data = content.read_bytes() if isinstance(content, Path) else content
            data = data.encode() if isinstance(data, str) else data
            entry.size, entry.mode = len(data), 0o755
            archive.addfile(entry, io.BytesIO(data))
        for name in links:
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname = tarfile.SYMTYPE, "/bin/busybox"
            archive.addfile(entry)
    return stream.getvalue()
