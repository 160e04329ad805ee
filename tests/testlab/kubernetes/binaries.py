"""The programs of a real cluster: etcd, Kubernetes, kwok, CoreDNS, flannel and the queue, from the Go module proxy.

`python -m tests.testlab.kubernetes` builds them (20 minutes of CPU time at first, 30 s with Go's caches warm) and keeps
them outside the tree, under the hash of the modules. The test of an upgrade also needs the previous minor version
of Kubernetes: the same program with the modules of `kube/previous.mod`. Real kubelets need containerd.
"""

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

HERE = Path(__file__).parent
# Read at import: during a test run the variable leads the product to a temporary folder.
CACHE = Path(os.environ.get("XDG_CACHE_HOME", "/var/cache")) / "bedplate" / "kubernetes"
_LINKS = (
    *("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy"),
    *("kubelet", "kubeadm", "kubectl", "fake-gpus"),
)
PROGRAMS = ("etcd", "kwok", "coredns", "flannel", *_LINKS)
_PREVIOUS = "previous.mod"
# The module and the package of each program that is built.
_PACKAGES = {
    "kube": ("kube", "."),
    "etcd": ("etcd", "go.etcd.io/etcd/server/v3"),
    "etcdctl": ("etcd", "go.etcd.io/etcd/etcdctl/v3"),
    "etcdutl": ("etcd", "go.etcd.io/etcd/etcdutl/v3"),
    "kwok": ("kwok", "sigs.k8s.io/kwok/cmd/kwok"),
    "coredns": ("coredns", "."),
    "flannel": ("flannel", "github.com/flannel-io/flannel"),
}
CONTAINERD, POLICIES, QUEUES = "containerd", "policies", "queues"
EXTRAS = {
    CONTAINERD: {
        name: ("kube", f"github.com/containerd/containerd/v2/cmd/{name}")
        for name in ("containerd", "containerd-shim-runc-v2", "ctr")
    },
    POLICIES: {"netpol": ("flannel", "sigs.k8s.io/kube-network-policies/cmd")},
    QUEUES: {"kueue": ("kube", "sigs.k8s.io/kueue/cmd/kueue"), "jobset": ("kube", "sigs.k8s.io/jobset")},
}
"""Programs beside the cluster's own, with the modules of `NAME.mod`: the container engine, and add-ons."""


class BuildError(Exception):
    """The programs cannot be built here."""


def find_programs() -> Path | None:
    """Return a folder with all programs: $BEDPLATE_KUBERNETES, the cache, or a folder on PATH; None without one."""
    return next((folder for folder in _folders() if all((folder / name).exists() for name in PROGRAMS)), None)


def find_previous() -> Path | None:
    """Return the folder with the previous minor version of Kubernetes; None without it."""
    folder = _previous_folder()
    return folder if folder.exists() else None


def _previous_folder() -> Path:
    return CACHE / f"previous-{_digest([HERE / 'kube' / name for name in (_PREVIOUS, 'previous.sum', 'main.go')])}"


def _folders() -> Iterator[Path]:
    if "BEDPLATE_KUBERNETES" in os.environ:
        yield Path(os.environ["BEDPLATE_KUBERNETES"])
        return
    yield cache_folder()
    server = shutil.which("kube-apiserver")
    if server:
        yield Path(server).parent


def cache_folder() -> Path:
    """Return where these versions of the programs are kept."""
    names = sorted((*HERE.glob("*/go.mod"), *HERE.glob("*/go.sum"), *HERE.glob("*/*.go")))
    return CACHE / _digest(names)


def _digest(names: Iterable[Path]) -> str:
    return hashlib.sha256(b"".join(name.read_bytes() for name in names)).hexdigest()[:16]


def build() -> Path:
    """Build the programs unless they are in the cache, and return their folder. Raises BuildError."""
    return _build(cache_folder(), _PACKAGES)


def build_previous() -> Path:
    """Build the previous minor version of Kubernetes unless it is in the cache. Raises BuildError."""
    return _build(_previous_folder(), {"kube": ("kube", ".")}, _PREVIOUS)


def find_extra(name: str) -> Path | None:
    """Return the folder of a name in EXTRAS, in the versions of the stack; None without it."""
    folder = _extra_folder(name)
    return folder if folder.exists() else None


def build_extra(name: str) -> Path:
    """Build the programs of a name in EXTRAS unless they are in the cache. Raises BuildError."""
    return _build(_extra_folder(name), EXTRAS[name], f"{name}.mod")


def _extra_folder(name: str) -> Path:
    module = HERE / next(iter(EXTRAS[name].values()))[0]
    return CACHE / f"{name}-{_digest((module / f'{name}.mod', module / f'{name}.sum'))}"


def _build(target: Path, packages: Mapping[str, tuple[str, str]], modules: str = "go.mod") -> Path:
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if target.exists():
            return target
        if shutil.which("go") is None or shutil.which("gcc") is None:
            raise BuildError("needs Go 1.26 or newer, and gcc, on PATH")
        with TemporaryDirectory(dir=CACHE) as temporary:
            folder = Path(temporary) / "bin"
            folder.mkdir()
            for name, (module, package) in packages.items():
                _go_build(module, package, folder / name, modules)
            for link in _LINKS if "kube" in packages else ():
                (folder / link).symlink_to("kube")
            folder.rename(target)
    return target


def _go_build(module: str, package: str, output: Path, modules: str) -> None:
    # flannel has a backend in C, of which nothing is used here.
    linked, has_c = (
        ("-extldflags=-static", "1") if package.endswith("/flannel") else (_version_flags(module, modules), "0")
    )
    command = (
        "go",
        "build",
        f"-modfile={modules}",
        "-trimpath",
        "-ldflags",
        f"-s -w {linked}",
        "-o",
        str(output),
        package,
    )
    if subprocess.run(command, cwd=HERE / module, env={**os.environ, "CGO_ENABLED": has_c}, check=False).returncode:
        raise BuildError(f"go build failed in {HERE / module}")


def _version_flags(module: str, modules: str) -> str:
    """Return the flags by which programs of Kubernetes know their version, as upstream's build sets them."""
    found = re.search(r"k8s\.io/kubernetes v(\d+)\.(\d+)\.(\d+)", (HERE / module / modules).read_text())
    if not found:
        return ""
    major, minor, patch = found.groups()
    values = {"gitVersion": f"v{major}.{minor}.{patch}", "gitMajor": major, "gitMinor": minor, "gitTreeState": "clean"}
    return " ".join(f"-X k8s.io/component-base/version.{key}={value}" for key, value in values.items())
