"""Standard images with real programs: built by mmdebstrap, pushed by skopeo, pulled by digest and run by containerd."""

import hashlib
import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from bedplate.cli import run
from bedplate.errors import MachineError
from images import containers
from images.containers import BuiltImage, arch_here, read_image
from tests.testlab.fakes.wheels import digest, wheel
from tests.testlab.kubernetes.registry import built_here, need_container_tools, registry
from tests.testlab.run import lack

ROOT = Path(__file__).parents[2]
BASE = ROOT / "tests/data/fleets/base.yaml"


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of images, as the command has it."""
    need_container_tools()
    if os.geteuid():
        lack("needs root")
    folder = tmp_path_factory.mktemp("cache") / "bedplate/containers"
    folder.mkdir(parents=True)
    return folder


@pytest.fixture(scope="module")
def base(cache: Path) -> BuiltImage:
    """Return the image `base`, built from Debian's packages."""
    return built_here("base", cache / f"base-{arch_here()}")


@dataclass(frozen=True)
class Containerd:
    """A containerd of this machine."""

    socket: Path

    def ctr(self, *words: str) -> str:
        """Return the output of a command."""
        command = ("ctr", "--address", str(self.socket), "--namespace", "k8s.io", *words)
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def shell(self, image: str, script: str) -> str:
        """Return the output of a script in a container of an image that it has pulled."""
        return self.ctr("run", "--rm", image, f"test-{time.monotonic_ns()}", "sh", "-c", script)


@pytest.fixture(scope="module")
def containerd() -> Iterator[Containerd]:
    """Yield containerd, with folders of its own."""
    if not shutil.which("containerd") or not shutil.which("runc"):
        lack("needs containerd and runc")
    # Sockets have short paths, and overlayfs needs a file system other than overlayfs.
    with TemporaryDirectory(prefix="bp-", dir="/dev/shm") as name:
        folder = Path(name)
        text = f'version = 2\nroot = "{name}/root"\nstate = "{name}/state"\n[grpc]\naddress = "{name}/socket"\n'
        (folder / "config.toml").write_text(text)
        with subprocess.Popen(("containerd", "--config", folder / "config.toml"), stderr=subprocess.DEVNULL) as process:
            try:
                end = time.monotonic() + 20
                while not (folder / "socket").exists():
                    assert time.monotonic() < end
                    time.sleep(0.1)
                yield Containerd(folder / "socket")
            finally:
                process.terminate()


@pytest.fixture
def fleet(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Return a function that writes a fleet file with a registry."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache.parents[1]))

    def write(host: str) -> Path:
        jobs = f"jobs: {{registries: ['http://{host}']}}\nallow: {{}}"
        (tmp_path / "fleet.yaml").write_text(BASE.read_text().replace("allow: {}", jobs))
        return tmp_path / "fleet.yaml"

    return write


def push(file: Path, recipe: str = "base") -> int:
    """Push an image; return the exit status."""
    return run(["image", "container", "push", recipe, "--fleet", str(file)])


def pulled(built: BuiltImage, host: str, file: Path, containerd: Containerd) -> str:
    """Push an image to a registry, and return its name after containerd has pulled it from there."""
    assert push(file, built.name) == 0
    image = f"{host}/lab/{built.name}@{built.digest}"
    containerd.ctr("images", "pull", "--plain-http", image)
    return image


def test_a_second_build_has_the_same_digest(base: BuiltImage, tmp_path: Path) -> None:
    """Packages, wheels and compiled modules are the same, byte by byte."""
    assert built_here("base", tmp_path / "base-again") == base


def test_an_image_is_pulled_by_its_digest_and_has_its_programs(
    base: BuiltImage,
    fleet: Callable[[str], Path],
    containerd: Containerd,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A second push changes nothing. The image has no host key and no name of this machine, and compiled modules."""
    with registry(tmp_path / "registry") as host:
        file = fleet(host)
        assert [push(file), push(file)] == [0, 0]
        image = f"{host}/lab/base@{base.digest}"
        assert capsys.readouterr().out.splitlines() == [image] * 2
        assert run(["image", "container", "list", "--json", "--fleet", str(file)]) == 0
        (listed,) = json.loads(capsys.readouterr().out)
        assert (listed["digest"], listed["pushed"]) == (base.digest, [f"http://{host}"])
        containerd.ctr("images", "pull", "--plain-http", image)

    script = "python -c 'import sys; print(sys.version_info[:2])'; uv --version; git --version; ls /etc/ssh; env"
    output = containerd.shell(image, script)
    assert output.startswith("(3, 13)\nuv 0.")
    assert "git version" in output
    assert "sshd_config" in output
    assert "ssh_host" not in output
    assert "LANG=C.UTF-8" in output
    own = containerd.shell(
        image, "cat /etc/hostname /etc/resolv.conf /etc/apt/sources.list /etc/apt/sources.list.d/* || :"
    )
    assert [line.split()[2] for line in own.splitlines()] == [
        f"http://deb.debian.org/debian{end}" for end in ("", "", "-security")
    ]
    modules = "/usr/local/lib/python3.13/dist-packages/uv/__pycache__"
    assert "__init__.cpython-313.pyc" in containerd.shell(image, f"ls {modules}")


def test_mpi_starts_ranks(cache: Path, fleet: Callable[[str], Path], containerd: Containerd, tmp_path: Path) -> None:
    """mpi4py is that of the Open MPI in the image."""
    built = built_here("mpi", cache / f"mpi-{arch_here()}")
    with registry(tmp_path / "registry") as host:
        image = pulled(built, host, fleet(host), containerd)
    ranks = "from mpi4py import MPI; print(MPI.COMM_WORLD.allreduce(1))"
    script = f"mpirun --allow-run-as-root --oversubscribe -n 2 python -c '{ranks}'"
    assert containerd.shell(image, script).split() == ["2", "2"]


def test_torch_has_the_wheels_of_its_lock_and_their_programs(
    cache: Path, fleet: Callable[[str], Path], containerd: Containerd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the place of PyTorch, whose wheels have gigabytes: a package of its name, from a folder, with a hash."""
    name, content = wheel("torch", "2.99")
    (tmp_path / "wheels").mkdir()
    (tmp_path / "wheels" / name).write_bytes(content)
    (tmp_path / "torch.txt").write_text(f"torch==2.99 {digest(content)}\n")
    monkeypatch.setattr(containers, "_LOCKS", {"torch": tmp_path / "torch.txt"})
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))
    built = built_here("torch", cache / f"torch-{arch_here()}")
    with registry(tmp_path / "registry") as host:
        image = pulled(built, host, fleet(host), containerd)

    script = "torch; head -n 1 /usr/local/bin/torch; gcc --version; python -c 'import torch; print(torch.__file__)'"
    lines = containerd.shell(image, script).splitlines()
    assert lines[:2] == ["torch 2.99", "#!/usr/bin/python3"]
    assert lines[2].startswith("gcc ")
    assert lines[-1] == "/usr/local/lib/python3.13/dist-packages/torch/__init__.py"


@contextmanager
def small_disk(folder: Path, size: str) -> Iterator[Path]:
    """Mount a file system of a size, in memory, at a new folder."""
    folder.mkdir()
    subprocess.run(("mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder), check=True)
    try:
        yield folder
    finally:
        subprocess.run(("umount", "--lazy", folder), check=True)


def test_a_full_disk_ends_a_build_and_keeps_the_former_image(
    base: BuiltImage, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fix names TMPDIR, and nothing remains of the build."""
    with small_disk(tmp_path / "small", "40m") as folder:
        monkeypatch.setenv("TMPDIR", str(folder))
        with pytest.raises(MachineError, match=r"cannot (build base|install the wheels)") as error:
            built_here("base", cache / f"base-{arch_here()}")
        assert not [path for path in folder.iterdir() if path.is_dir()]

    assert "TMPDIR" in error.value.fix
    assert read_image(cache / f"base-{arch_here()}") == base
    assert not list(cache.glob(".build-*"))


def test_a_full_registry_is_named(
    base: BuiltImage, fleet: Callable[[str], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It has nothing of the image afterwards but parts, and the status is 6."""
    with small_disk(tmp_path / "small", "20m") as folder, registry(folder) as host:
        assert push(fleet(host)) == 6
        assert run(["image", "container", "list", "--json", "--fleet", str(fleet(host))]) == 0

    out, err = capsys.readouterr()
    assert f"{host}/lab takes no base" in err
    assert "fix  check its disk space" in err
    assert json.loads(out)[0]["pushed"] == []


def test_a_registry_that_is_away_is_named(
    base: BuiltImage, fleet: Callable[[str], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Neither push nor list waits."""
    with registry(tmp_path / "registry") as host:
        pass
    started = time.monotonic()

    assert push(fleet(host)) == 6
    assert run(["image", "container", "list", "--fleet", str(fleet(host))]) == 6

    assert "connection refused" in capsys.readouterr().err
    assert time.monotonic() - started < 30


def test_an_interrupted_push_is_not_seen_and_goes_on(
    base: BuiltImage, cache: Path, fleet: Callable[[str], Path], tmp_path: Path
) -> None:
    """The manifest is last: a registry with some of the layers does not have the image."""
    folder = cache / f"base-{arch_here()}"
    with registry(tmp_path / "registry") as host:
        target = f"docker://{host}/lab/base:{arch_here()}-{base.digest[7:19]}"
        words = ("skopeo", "copy", "--quiet", "--preserve-digests", "--dest-tls-verify=false", f"oci:{folder}", target)
        with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            end = time.monotonic() + 60
            while not list((tmp_path / "registry").rglob("_uploads/*")):
                assert time.monotonic() < end
                time.sleep(0.01)
            process.kill()
        inspect = ("skopeo", "inspect", "--raw", "--tls-verify=false", f"docker://{host}/lab/base@{base.digest}")
        assert subprocess.run(inspect, capture_output=True, check=False).returncode

        assert push(fleet(host)) == 0

        manifest = subprocess.run(inspect, capture_output=True, check=True).stdout
        assert f"sha256:{hashlib.sha256(manifest).hexdigest()}" == base.digest
