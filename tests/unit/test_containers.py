"""Container images for jobs: what a build makes of packages and wheels, its failures, pushes and the list of images."""

import gzip
import io
import json
import os
import re
import tarfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto import mock_aws
from pydantic import TypeAdapter

from bedplate.account.client import AwsClient
from bedplate.bundle import BundleTarget
from bedplate.cli import run
from bedplate.errors import InputError, MachineError
from bedplate.spec.text import RegistryUrl
from images import containers
from images.containers import build, read_image

ROOT = Path(__file__).parents[2]
HOME = "us-west-2"
# In place of mmdebstrap: it runs the hooks in a root folder with some files of packages, and packs it with one time.
DEBIAN = """#!/usr/bin/python3
import json, os, shutil, socket, subprocess, sys, tempfile
words = sys.argv[1:]
with open(os.environ["SEEN"], "w") as seen:
    json.dump([words, os.environ["SOURCE_DATE_EPOCH"]], seen)
root = tempfile.mkdtemp()
own = {"etc/hostname": socket.gethostname(), "etc/resolv.conf": str(os.getpid()), "etc/apt/sources.list": words[-3]}
own |= {"bin/sh": "", "etc/ssh/ssh_host_rsa_key": "", "etc/apt/sources.list.d/0.list": words[-2]}
os.makedirs(os.path.join(root, "usr/local/bin"))
for name, text in own.items():
    os.makedirs(os.path.join(root, os.path.dirname(name)), exist_ok=True)
    with open(os.path.join(root, name), "w") as file:
        file.write(text)
for hook in (word.partition("=")[2] for word in words if word.startswith("--customize-hook=")):
    special, *rest = hook.split()
    if special == "copy-in":
        shutil.copytree(rest[0], root + "/" + os.path.basename(rest[0]), symlinks=True)
    elif special == "copy-out":
        shutil.copy(root + rest[0], rest[1])
    else:
        subprocess.run(["sh", "-c", hook, "sh", root], check=True)
target = words[words.index("trixie") + 1]
subprocess.run(["tar", "--sort=name", "--mtime=@0", "-C", root, "-cf", target, "."], check=True)
shutil.rmtree(root)
if message := os.environ.get("FAILURE"):
    sys.exit(message)
"""
# In place of skopeo: it notes its words and its login, and knows the images that it has copied.
SKOPEO = """#!/usr/bin/python3
import json, os, sys
words, file = sys.argv[1:], os.environ.get("REGISTRY_AUTH_FILE")
with open(os.environ["SEEN"], "a") as seen:
    login = [oct(os.stat(file).st_mode & 0o777), json.load(open(file))] if file else None
    seen.write(json.dumps([words, login]) + chr(10))
name = words[-1].split("/")[2]
pushed = os.environ["SEEN"] + name
if os.environ.get("AWAY", "nowhere") in words[-1]:
    sys.exit('time="now" level=fatal msg="connection refused"')
if "inspect" in words and not os.path.exists(pushed):
    error = os.environ.get("ABSENT", "manifest unknown: no such image")
    sys.exit('time="now" level=fatal msg="Error reading manifest: ' + error + '"')
if "copy" in words and (error := os.environ.get("REFUSES")):
    sys.exit('time="now" level=fatal msg="writing blob: ' + error + '"')
open(pushed, "w").close()
"""
Program = Callable[[str, str], None]


@pytest.fixture
def seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the file in which the programs in the place of others note what they get."""
    monkeypatch.setenv("SEEN", str(tmp_path / "seen"))
    return tmp_path / "seen"


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seen: Path) -> Program:
    """Return a function that puts a program before all others."""
    folder = tmp_path / "bin"
    folder.mkdir()
    # Only root changes owners and roots.
    for name in ("chown", "chroot"):
        (folder / name).write_text("#!/bin/sh\n")
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")

    def write(name: str, text: str) -> None:
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)

    return write


def unpack(target: BundleTarget, lock: Path, folder: Path) -> None:
    """Write what pip makes of wheels on this machine, with names of this machine."""
    folder.mkdir()
    texts = {
        "uv/__init__.py": "",
        "uv-1.dist-info/METADATA": "Name: uv\n",
        "uv-1.dist-info/RECORD": f"{os.getpid()}\n",
        "bin/torchrun": f"#!{folder}/python3\nrun\n",
        "bin/long": f"#!/bin/sh\n'''exec' \"{folder}/python3\" \"$0\" \"$@\"\n' '''\nrun\n",
        "bin/shell": "#!/bin/sh\nrun\n",
        "bin/uv": "\x7fELF\0#!/usr/bin/python\n",
        "lock": lock.read_text(),
    }
    for name, text in texts.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
        (folder / name).chmod(0o755 if name.startswith("bin/") else 0o600)


def layers_of(folder: Path) -> Sequence[Mapping[str, bytes]]:
    """Return the files of each layer."""
    blobs = folder / "blobs/sha256"
    index = json.loads((folder / "index.json").read_text())
    manifest = json.loads((blobs / index["manifests"][0]["digest"][7:]).read_text())
    layers = []
    for layer in manifest["layers"]:
        data = gzip.decompress((blobs / layer["digest"][7:]).read_bytes())
        with tarfile.open(fileobj=io.BytesIO(data)) as archive:
            layers.append({entry.name: file.read() for entry in archive if (file := archive.extractfile(entry))})
    return layers


def test_packages_and_wheels_are_separate_layers(program: Program, seen: Path, tmp_path: Path) -> None:
    """Programs of wheels name Debian's Python, and nothing names this machine or its mirror."""
    program("mmdebstrap", DEBIAN)

    built = build("base", tmp_path / "base-amd64", "http://mirror.lab.example/debian", unpack)

    packages, wheels = layers_of(tmp_path / "base-amd64")
    assert packages.keys() == {"./bin/sh", "./etc/apt/sources.list"}
    sources = packages["./etc/apt/sources.list"].decode().splitlines()
    debian = "http://deb.debian.org/debian"
    assert [line.split()[2:] for line in sources] == [
        [f"{debian}{end}", suite, "main"]
        for end, suite in (("", "trixie"), ("", "trixie-updates"), ("-security", "trixie-security"))
    ]
    python = "usr/local/lib/python3.13/dist-packages"
    modules = {f"{python}/{name}" for name in ("lock", "uv/__init__.py", "uv-1.dist-info/METADATA")}
    assert wheels.keys() == {f"usr/local/bin/{name}" for name in ("long", "shell", "torchrun", "uv")} | modules
    assert wheels["usr/local/bin/torchrun"] == wheels["usr/local/bin/long"] == b"#!/usr/bin/python3\nrun\n"
    assert wheels["usr/local/bin/shell"] == b"#!/bin/sh\nrun\n"
    assert wheels["usr/local/bin/uv"] == b"\x7fELF\0#!/usr/bin/python\n"
    assert wheels[f"{python}/lock"].startswith(b"uv==")
    words, epoch = json.loads(seen.read_text())
    assert "--include=ca-certificates,git,libnss-wrapper,openssh-server,python-is-python3,python3" in words
    assert [word.split()[2] for word in words[-3:]] == [
        f"http://mirror.lab.example/debian{end}" for end in ("", "", "-security")
    ]
    assert (epoch, built.name, read_image(tmp_path / "base-amd64")) == ("0", "base", built)


def test_equal_inputs_make_an_equal_digest(program: Program, tmp_path: Path) -> None:
    """Also from another mirror, with another resolver. The second build replaces the first.

    Another recipe has another digest, with its own lock.
    """
    program("mmdebstrap", DEBIAN)

    first, again, other = (
        build(name, tmp_path / f"{name}-amd64", f"http://{mirror}.lab.example/debian", unpack)
        for name, mirror in (("base", "near"), ("base", "far"), ("torch", "near"))
    )

    assert first == again
    assert first.digest != other.digest
    _, wheels = layers_of(tmp_path / "torch-amd64")
    assert b"\ntorch==" in wheels["usr/local/lib/python3.13/dist-packages/lock"]
    assert sorted(path.name for path in tmp_path.glob("*-amd64")) == ["base-amd64", "torch-amd64"]


def test_wheels_are_those_of_the_images_python(program: Program, tmp_path: Path) -> None:
    """The lock that pip gets has no markers: pip evaluates them for the Python that runs it."""
    program("mmdebstrap", DEBIAN)

    build("torch", tmp_path / "torch-amd64", unpack=unpack)

    lock = layers_of(tmp_path / "torch-amd64")[1]["usr/local/lib/python3.13/dist-packages/lock"].decode()
    whole = (ROOT / "roles/frameworks/torch.txt").read_text()
    numpy = re.findall(r"^numpy==(\S+) ; python_full_version (\S+)", whole, re.MULTILINE)
    assert re.findall(r"^numpy==(\S+)", lock, re.MULTILINE) == [version for version, sign in numpy if sign == ">="]
    assert re.findall(r"^torch==(\S+)", lock, re.MULTILINE) == re.findall(r"^torch==(\S+)", whole, re.MULTILINE)
    assert ";" not in lock
    assert all(re.search(r" \\\n    --hash=sha256:[0-9a-f]{64}", entry) for entry in re.split(r"\n(?=\S)", lock))


@pytest.mark.parametrize(
    ("output", "fix"),
    [
        ("E: tar: ./x: No space left on device", "TMPDIR"),
        ("W: x\nE: Failed to fetch http://mirror", "--mirror"),
        ("I: x\nE: no keyring", "debian-archive-keyring"),
        ("E: unable to unshare", "uidmap"),
        ("killed", "read the error"),
    ],
)
def test_a_failed_build_leaves_the_former_image(
    output: str, fix: str, program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error has the words of mmdebstrap and a fix, and no folder of the build remains."""
    program("mmdebstrap", DEBIAN)
    folder = tmp_path / "images/base-amd64"
    folder.parent.mkdir()
    (folder.parent / ".build-killed").mkdir()
    built = build("base", folder, unpack=unpack)
    monkeypatch.setenv("FAILURE", output)

    with pytest.raises(MachineError, match=f"cannot build base: {output.rpartition('E: ')[2]}") as error:
        build("base", folder, unpack=unpack)

    assert fix in error.value.fix
    assert read_image(folder) == built
    assert list(folder.parent.iterdir()) == [folder]


def test_a_missing_program_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The fix names the package."""
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(MachineError, match="mmdebstrap is missing") as error:
        build("base", tmp_path / "base-amd64", unpack=unpack)

    assert "apt install mmdebstrap" in error.value.fix


def _cut_layer(folder: Path) -> None:
    layer = max((folder / "blobs/sha256").iterdir(), key=lambda path: path.stat().st_size)
    layer.write_bytes(layer.read_bytes()[:-1])


def _lose_layer(folder: Path) -> None:
    max((folder / "blobs/sha256").iterdir(), key=lambda path: path.stat().st_size).unlink()


def _empty_index(folder: Path) -> None:
    (folder / "index.json").write_text('{"manifests": []}')


def _foreign_file(folder: Path) -> None:
    (folder / "index.json").write_text('{"manifests": [{"digest": "sha256:../../index.json"}]}')


@pytest.mark.parametrize("damage", [_cut_layer, _lose_layer, _empty_index, _foreign_file])
def test_a_damaged_image_is_found(damage: Callable[[Path], None], program: Program, tmp_path: Path) -> None:
    """Each file must have its digest; the fix is a new build."""
    program("mmdebstrap", DEBIAN)
    folder = tmp_path / "mpi-amd64"
    build("mpi", folder, unpack=unpack)
    damage(folder)

    with pytest.raises(InputError, match="damaged") as error:
        read_image(folder)

    assert "container build mpi" in error.value.fix


@pytest.fixture
def fleet(tmp_path: Path, program: Program, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Return a function that writes a fleet file with jobs; a cache with the image `base` for this machine exists."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(containers, "arch_here", lambda: "amd64")
    program("mmdebstrap", DEBIAN)
    folder = tmp_path / "cache/bedplate/containers"
    folder.mkdir(parents=True)
    build("base", folder / "base-amd64", unpack=unpack)
    (tmp_path / "seen").unlink()

    def write(jobs: str, *edits: tuple[str, str]) -> Path:
        text = (ROOT / "tests/data/fleets/base.yaml").read_text().replace("allow: {}", f"jobs: {jobs}\nallow: {{}}")
        for old, new in (("111122223333", "123456789012"), *edits):
            text = text.replace(old, new)
        (tmp_path / "fleet.yaml").write_text(text)
        return tmp_path / "fleet.yaml"

    return write


def notes(seen: Path) -> list[tuple[list[str], Any]]:
    """Return the words and the login of each call of skopeo."""
    return [tuple(json.loads(line)) for line in seen.read_text().splitlines()]


@pytest.fixture
def push_to_ecr(
    fleet: Callable[..., Path], program: Program, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[], int]]:
    """Yield a function that pushes the image `base` to ECR and returns the status."""
    program("skopeo", SKOPEO)
    file = fleet("{ecr: true}")
    with mock_aws():
        client = AwsClient(boto3.session.Session("key", "secret"))
        monkeypatch.setattr("bedplate.account.client.open_client", lambda: client)
        yield lambda: run(["image", "container", "push", "base", "--fleet", str(file)])


def hosts_and_digest(folder: Path) -> tuple[str, str, str]:
    """Return ECR of the home region and of another, and the digest of `base`."""
    host = f"123456789012.dkr.ecr.{HOME}.amazonaws.com"
    digest = read_image(folder / "cache/bedplate/containers/base-amd64").digest
    return host, host.replace(HOME, "us-east-1"), digest


def test_ecr_gets_an_image_with_a_token_that_no_list_of_processes_shows(
    push_to_ecr: Callable[[], int], seen: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It goes to the home region; an image that is there is not sent again."""
    assert push_to_ecr() == 0

    out, _ = capsys.readouterr()
    host, away, digest = hosts_and_digest(tmp_path)
    assert out.splitlines()[0] == f"{host}/lab/base@{digest}"
    (_, login), (copy, _), (inspect, _) = notes(seen)
    assert login[0] == "0o600"
    assert login[1]["auths"].keys() == {host}
    token = login[1]["auths"][host]["auth"]
    assert copy[-1] == f"docker://{host}/lab/base:amd64-{digest[7:19]}"
    assert {"--preserve-digests", "--dest-tls-verify=true"} <= {*copy}
    assert inspect[-1] == f"docker://{away}/lab/base@{digest}"
    assert token
    assert token not in f"{out}{copy}{inspect}"


def test_regions_that_ecr_has_not_filled_get_the_image_by_the_next_push(
    push_to_ecr: Callable[[], int], seen: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """ECR copies only what comes after its rule. The first push names such regions, only the second sends."""
    host, away, digest = hosts_and_digest(tmp_path)
    lines = [f"{at}/lab/base@{digest}" for at in (host, away)]

    statuses, outs = zip(*((push_to_ecr(), capsys.readouterr().out.splitlines()) for _ in range(3)), strict=True)

    assert statuses == (0, 0, 0)
    assert outs[0][0] == lines[0]
    assert outs[0][1].startswith(f"{lines[1]}  not there yet")
    assert outs[1:] == (lines, lines)
    copies = [words[-1].split("/")[2] for words, _ in notes(seen) if "copy" in words]
    assert copies == [host, away]


def test_a_repository_that_is_missing_in_ecr_is_made_by_up(
    push_to_ecr: Callable[[], int], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No disk and no login is at fault."""
    absent = "name unknown: The repository with name 'lab/base' does not exist in the registry with id '123456789012'"
    monkeypatch.setenv("ABSENT", absent)
    monkeypatch.setenv("REFUSES", absent)

    assert push_to_ecr() == 6

    err = capsys.readouterr().err
    assert "does not exist in the registry" in err
    assert "run `bedplate up`, which makes the repositories" in err


@pytest.mark.parametrize(
    "absent",
    [
        "manifest unknown: Requested image not found",
        "unknown: artifact lab/base@sha256:0 not found",
        "unknown: repository lab/base not found",
    ],
)
def test_registries_say_in_their_own_words_that_an_image_is_missing(
    absent: str, fleet: Callable[..., Path], program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as Harbor: the image is pushed."""
    program("skopeo", SKOPEO)
    monkeypatch.setenv("ABSENT", absent)

    assert (
        run(["image", "container", "push", "--fleet", str(fleet("{registries: ['http://harbor.lab.example']}"))]) == 0
    )


@pytest.mark.parametrize(
    ("words", "message", "fix"),
    [
        (["push", "torch"], "not built for amd64: torch", "container build torch"),
        (["push", "tensor"], "no recipe is named tensor", "base, torch, mpi"),
        (["build", "tensor"], "no recipe is named tensor", "base, torch, mpi"),
    ],
)
def test_a_mistake_is_named_before_anything_is_done(
    words: list[str], message: str, fix: str, fleet: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    """The fix has the command or the key."""
    file = fleet("{registries: ['http://localhost:5000']}")

    assert run(["image", "container", *words, "--fleet", str(file)]) == 2

    _, err = capsys.readouterr()
    assert message in err
    assert fix in err


@pytest.mark.parametrize("name", ["docker.io", "registry-1.docker.io", "ghcr.io:80", f"1.dkr.ecr.{HOME}.amazonaws.com"])
def test_public_registries_have_https(
    name: str, fleet: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    """By http each machine would ask them without encryption, for all images; the fix has https."""
    assert run(["check", str(fleet(f"{{registries: ['http://{name}']}}"))]) == 2
    assert f"write https://{name}" in "".join(capsys.readouterr())
    check = TypeAdapter(RegistryUrl).validate_python
    assert [check(url) for url in (f"https://{name}", f"http://{name.replace('.', '-')}")]


def test_a_push_needs_a_registry(fleet: Callable[..., Path], capsys: pytest.CaptureFixture[str]) -> None:
    """The fix has the keys."""
    assert run(["image", "container", "push", "--fleet", str(fleet("{ask_above: 5}"))]) == 2

    assert "add `ecr: true` or registries" in capsys.readouterr().err


def test_a_registry_that_is_away_is_named(
    fleet: Callable[..., Path],
    program: Program,
    seen: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The other registry gets the image, the status is 6, and the list says what it does not know."""
    program("skopeo", SKOPEO)
    monkeypatch.setenv("AWAY", "away.lab.example")
    file = fleet("{registries: ['http://away.lab.example', 'https://here.lab.example']}")

    assert run(["image", "container", "push", "--fleet", str(file)]) == 6
    out, err = capsys.readouterr()
    assert out.startswith("here.lab.example/lab/base@sha256:")
    assert "away.lab.example/lab: connection refused" in err

    assert run(["image", "container", "list", "--json", "--fleet", str(file)]) == 6
    out, err = capsys.readouterr()
    (image,) = json.loads(out)
    assert (image["recipe"], image["built"], image["pushed"]) == ("base", "amd64", ["https://here.lab.example"])
    assert "unknown: away.lab.example/lab: connection refused" in err
    assert {word for words, _ in notes(seen) for word in words if "tls" in word} == {
        "--tls-verify=false",
        "--tls-verify=true",
        "--dest-tls-verify=true",
    }


def test_the_list_has_the_groups_that_use_an_image(
    fleet: Callable[..., Path], program: Program, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also of one that was built elsewhere; images that are no standard ones are not in it."""
    program("skopeo", SKOPEO)
    other = f"sha256:{'0123456789abcdef' * 4}"
    images = f"train: 'localhost:5000/lab/torch@{other}', cellar: 'localhost:5000/other/torch@{other}'"
    file = fleet(f"{{registries: ['http://localhost:5000'], images: {{{images}}}}}")

    assert run(["image", "container", "list", "--fleet", str(file)]) == 0

    head, base, torch = capsys.readouterr().out.splitlines()
    assert head.split() == ["image", "digest", "built", "for", "in", "used", "by"]
    assert (base.split()[2:], torch.split()) == (["amd64", "-", "-"], ["torch", other[:19], "-", "-", "train"])
