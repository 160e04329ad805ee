"""Environments of runs: built by the real uv from wheels of a stand-in for the hub, with the index of packages away."""

import fcntl
import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from bedplate.programs.agent import environments
from bedplate.programs.agent.environments import Environments, fault_of, key_of, reason_of, with_hashes
from bedplate.programs.agent.sources import LIST, BuildError, environment_file, read_sources
from bedplate.programs.connection import Connection
from tests.testlab.fakes.laptop import HOST, TOKEN
from tests.testlab.fakes.runs import ARTIFACTS, AgentRun
from tests.testlab.fakes.wheels import WheelHub, digest, wheel
from tests.testlab.run import ROOT, need_root

ALPHA, BETA, OLD_BETA = wheel("alpha", "1.0", ["beta>=1"]), wheel("beta", "2.0"), wheel("beta", "1.5")
PATH = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
AWAY = "http://127.0.0.1:1"
VARIABLES = {"PATH": PATH, "UV_INDEX_URL": f"{AWAY}/simple", "UV_HTTP_RETRIES": "0", "BEDPLATE_HUB": "no"}
PROJECT = '[project]\nname = "own"\nversion = "0"\nrequires-python = ">=3.9"\ndependencies = ["alpha"]\n'
LOCKED = "".join(
    f'[[package]]\nname = "{name}"\nversion = "{version}"\nsource = {{ registry = "{AWAY}/simple" }}\n'
    f'dependencies = [{needs}]\nwheels = [{{ url = "{AWAY}/{file}", hash = "sha256:{hashlib.sha256(data).hexdigest()}",'
    f" size = {len(data)} }}]\n\n"
    for name, version, needs, (file, data) in (
        ("alpha", "1.0", '{ name = "beta" }', ALPHA),
        ("beta", "1.5", "", OLD_BETA),
    )
)
UV_LOCK = (
    f'version = 1\nrevision = 3\nrequires-python = ">=3.9"\n\n{LOCKED}[[package]]\nname = "own"\nversion = "0"\n'
    'source = { virtual = "." }\ndependencies = [{ name = "alpha" }]\n\n'
    '[package.metadata]\nrequires-dist = [{ name = "alpha" }]\n'
)


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[WheelHub]:
    """Yield a hub with three wheels."""
    with WheelHub(tmp_path) as hub:
        hub.add(ALPHA, BETA, OLD_BETA)
        yield hub


class Machine:
    """A person's cache on a machine, and what was said of builds."""

    def __init__(self, hub: WheelHub, folder: Path) -> None:
        self.hub, self.cache, self.code, self.said = hub, folder / "cache", folder / "code", list[str]()
        self.code.mkdir()

    def provide(self, source: str, files: Mapping[str, str] | None = None, **variables: str) -> Path:
        """Return the environment of a source, as a new process would."""
        for name, text in (files or {}).items():
            (self.code / name).parent.mkdir(exist_ok=True)
            (self.code / name).write_text(text)
        url = f"https://{HOST}:{self.hub.server_address[1]}"
        hub = Connection(url, self.hub.certificate.read_text(), lambda _: TOKEN, "127.0.0.1")
        with closing(hub):
            cache = Environments(self.cache, hub, self.said.append)
            return cache.provide(source, self.code, {**VARIABLES, **variables})

    def need(self, text: str, **variables: str) -> Path:
        """Return the environment of a file with requirements."""
        return self.provide("requirements.txt", {"requirements.txt": text}, **variables)


@pytest.fixture
def machine(hub: WheelHub, tmp_path: Path) -> Machine:
    """Return a machine without environments."""
    return Machine(hub, tmp_path)


def packages(environment: Path) -> str:
    """Return what the Python of an environment imports."""
    code = "import sys, alpha, beta; print(alpha.version, beta.version, sys.prefix)"
    done = subprocess.run([environment / "bin/python", "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.replace(str(environment), "own").strip()


@pytest.mark.parametrize(
    ("files", "name"),
    [
        ({}, ""),
        ({"pyproject.toml": "[tool.ruff]\nline-length = 100\n"}, ""),
        ({"pyproject.toml": '[project]\nname = "x"\n\n[tool.x]\ndependencies = ["y"]\n'}, ""),
        ({"pyproject.toml": '[project]\ndependencies = [\n  # "none"\n]\n'}, ""),
        ({"pyproject.toml": '[project]\nname = "x"\ndependencies = [\n  # one\n  "y",\n]\n'}, "pyproject.toml"),
        ({"pyproject.toml": PROJECT, "requirements.txt": "y"}, "requirements.txt"),
        ({"pyproject.toml": "", "requirements.txt": "y", "uv.lock": ""}, "uv.lock"),
        ({"requirements.txt": "y", "uv.lock": ""}, "requirements.txt"),
        ({"uv.lock": ""}, ""),
        ({"requirements.txt": "# numpy\n\n"}, ""),
        ({"sub/requirements.txt": "y"}, ""),
    ],
)
def test_the_first_file_of_the_top_folder_counts(files: Mapping[str, str], name: str, tmp_path: Path) -> None:
    """A lock with its project is first, and a project without dependencies is none."""
    for file, text in files.items():
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).write_text(text)

    assert environment_file(tmp_path) == name


@pytest.mark.parametrize(
    "line",
    ["-e .", "  -e ./lib", "--editable=lib", ".", ".[dev]", "./lib", "lib/own", "own @ file:///x", "own[a] @ ./x"],
)
def test_what_is_in_the_folder_itself_is_refused(line: str, tmp_path: Path) -> None:
    """An environment that is shared cannot have code that differs in each run."""
    (tmp_path / "requirements.txt").write_text(f"numpy\n{line}\n")

    with pytest.raises(BuildError, match=r"requirements\.txt installs from the folder of the code: "):
        read_sources(tmp_path, "requirements.txt")


@pytest.mark.parametrize(
    "line",
    [
        *(
            "numpy",
            "numpy==2.1 --hash=sha256:ab",
            "a.b[c]>=1; python_version > '3'",
            "-e git+https://x.example/y#egg=z",
        ),
        *("# -e .", "x @ git+https://x.example/y/z", "--index-url https://x.example/simple", "https://x.example/a.whl"),
    ],
)
def test_other_requirements_are_for_uv(line: str, tmp_path: Path) -> None:
    """Indexes, addresses and repositories are the same for all runs."""
    (tmp_path / "requirements.txt").write_text(f"{line}\n")

    assert [*read_sources(tmp_path, "requirements.txt")] == ["requirements.txt"]


def test_the_key_has_all_that_decides(tmp_path: Path) -> None:
    """Files that others name count, and settings of uv; those of other tools do not."""
    texts = {
        "requirements.txt": "-r more/base.txt\n-c https://x.example/c.txt\n-r more/../more/base.txt\n-r /x\n",
        "more/base.txt": "-c c.txt\nnumpy\n",
        "more/c.txt": "numpy<3\n",
        "pyproject.toml": "[tool.ruff]\n",
        "uv.toml": "",
    }
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)

    found = read_sources(tmp_path, "requirements.txt")

    assert [*found] == ["requirements.txt", "more/base.txt", "more/c.txt", "uv.toml"]
    key = key_of(found, {}, tmp_path)
    assert key != key_of({**found, "more/c.txt": "numpy<2\n"}, {}, tmp_path)
    assert key == key_of(dict(reversed([*found.items()])), {}, tmp_path)
    (tmp_path / "pyproject.toml").write_text("[[tool.uv.index]]\n")
    assert "pyproject.toml" in read_sources(tmp_path, "requirements.txt")


def test_the_key_has_what_variables_of_uv_decide(tmp_path: Path) -> None:
    """Also the files that they name; a password, or how uv fetches, decides nothing."""
    file, plain = tmp_path / "c.txt", {"PATH": "/bin", "UV_INDEX_LAB_PASSWORD": "x", "UV_HTTP_TIMEOUT": "9"}
    given = [
        {},
        {"UV_INDEX": "lab=https://x.example"},
        {"UV_INDEX": "lab=https://y.example"},
        {"UV_CONSTRAINT": "c.txt"},
    ]
    file.write_text("numpy<2\n")
    keys = [key_of({}, {**plain, **variables}, tmp_path) for variables in given]
    file.write_text("numpy<3\n")
    keys.append(key_of({}, given[-1], tmp_path))

    assert len({*keys}) == len(keys)
    assert keys[0] == key_of({}, {}, tmp_path)


def test_a_file_above_the_folder_is_refused(tmp_path: Path) -> None:
    """It does not travel."""
    (tmp_path / "more").mkdir()
    (tmp_path / "requirements.txt").write_text("-r more/base.txt\n")
    (tmp_path / "more/base.txt").write_text("-r ../../base.txt\n")

    with pytest.raises(BuildError, match=r"\.\./base\.txt is above the folder of the code"):
        read_sources(tmp_path, "requirements.txt")


def test_a_list_has_the_hashes_that_are_known() -> None:
    """They are in the form of locks, on lines of their own or behind a version."""
    known = (
        "Alpha==1.0 ; python_version > '3' \\\n    --hash=sha256:1 \\\n    --hash=sha256:2\nbeta==2 --hash=sha256:3\n"
    )

    assert with_hashes("alpha==1.0\nbeta==1\n", known) == (
        "alpha==1.0 \\\n    --hash=sha256:1 \\\n    --hash=sha256:2\nbeta==1\n"
    )


def test_the_words_of_uv_are_one_line() -> None:
    """Both forms of its errors."""
    old = "  \u00d7 No solution found when resolving dependencies:\n  ╰─▶ Because x was\n      not found.\n"
    new = "Using Python 3.9\nerror: No solution found when resolving dependencies\n  cause: Because x was not found\n"

    assert reason_of(new) == "No solution found when resolving dependencies: Because x was not found"
    assert reason_of(old).startswith("No solution found when resolving dependencies: Because x was not found")


@pytest.mark.parametrize(
    ("source", "beta"), [("requirements.txt", "2.0"), ("pyproject.toml", "2.0"), ("uv.lock", "1.5")]
)
def test_an_environment_is_built_once_from_the_wheels_of_the_hub(source: str, beta: str, machine: Machine) -> None:
    """It has what its file says, and a list that names all of it; the index is away."""
    files = {"pyproject.toml": PROJECT, "uv.lock": UV_LOCK, "requirements.txt": "alpha\n"}

    first, second = machine.provide(source, files), machine.provide(source)

    assert packages(first) == f"1.0 {beta} own"
    assert first == second
    assert len(machine.said) == 1
    hashes = [f" \\\n    {digest(content)}" if source == "uv.lock" else "" for _, content in (ALPHA, OLD_BETA)]
    assert (first / LIST).read_text() == f"alpha==1.0{hashes[0]}\nbeta=={beta}{hashes[1]}\n"
    assert TOKEN not in machine.said[0]


def test_a_list_on_the_hub_makes_the_same_environment_again(machine: Machine) -> None:
    """Also when the code asks for something else by now, and newer versions are there."""
    path = f"{ARTIFACTS}/{LIST}"
    machine.hub.files[path] = f"alpha==1.0 \\\n    {digest(ALPHA[1])}\nbeta==1.5\n".encode()

    found = machine.provide(path, {"requirements.txt": "gamma\n"})

    assert packages(found) == "1.0 1.5 own"
    assert (found / LIST).read_bytes() == machine.hub.files[path]


def test_what_the_hub_lacks_comes_from_the_index(machine: Machine, tmp_path: Path) -> None:
    """For packages of both, the index has what the hub lacks."""
    name, content = wheel("gamma", "3.0")
    index = tmp_path / "simple/gamma"
    index.mkdir(parents=True)
    (index / name).write_bytes(content)
    (index / "index.html").write_text(f'<a href="{name}">{name}</a>')

    found = machine.need("gamma\nalpha\n", UV_INDEX_URL=index.parent.as_uri())

    assert "gamma==3.0" in (found / LIST).read_text()


def refused(machine: Machine, text: str, **variables: str) -> str:
    """Return why requirements have no environment."""
    with pytest.raises(BuildError) as error:
        machine.need(text, **variables)
    assert not [path for path in machine.cache.glob("*.*") if path.is_dir()]
    return str(error.value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("gamma==3\n", ["gamma", "the wheels of the hub: ", "the index of packages does not answer: "]),
        ("alpha\nbeta<1\n", ["alpha", "beta<1"]),
        (f"alpha==1.0 --hash=sha256:{0:064}\nbeta==2.0 {digest(BETA[1])}\n", ["alpha==1.0", "ash"]),
        ("alpha=\n", ["alpha="]),
    ],
    ids=["unknown", "conflict", "hash", "syntax"],
)
def test_what_cannot_be_built_says_which_package(text: str, expected: list[str], machine: Machine) -> None:
    """The cause is that of uv, in a line; nothing of it stays in the cache."""
    cause = refused(machine, text)

    assert all(part in cause for part in expected), cause
    assert "\n" not in cause


def test_without_wheels_and_index_the_cause_says_so(machine: Machine) -> None:
    """The person then knows that it is no matter of their file."""
    machine.hub.files.clear()

    assert refused(machine, "alpha\n").startswith("the index of packages does not answer: ")


def test_missing_packages_of_bp_itself_say_whose_they_are_and_what_helps(machine: Machine) -> None:
    """No file of the person's folder names them, so the operator or another index is the next step."""
    machine.hub.files.clear()

    cause = refused(machine, "# packages of bp search\nalpha\n")

    assert cause.startswith("the packages of bp search are missing: the index of packages does not answer: ")
    assert cause.endswith("put their wheels on the hub (docs/hub.md, Wheels), or name an index by UV_INDEX"), cause


@pytest.mark.parametrize("failures", [[404], [403]], ids=["no folder", "older hub"])
def test_a_hub_that_has_no_wheels_leaves_the_index(failures: list[int], machine: Machine) -> None:
    """An older hub refuses the folder."""
    machine.hub.failures = failures

    assert refused(machine, "alpha\n").startswith("the index of packages does not answer: ")


def test_a_hub_that_restarts_is_waited_for(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The index is not asked in its place: it may have other versions. After a time the cause names the hub."""
    machine.hub.failures = [503, 502, 503]
    assert packages(machine.need("alpha\n")) == "1.0 2.0 own"

    machine.hub.failures = [503] * 99
    monkeypatch.setattr(environments, "_PATIENCE", 0.5)
    with pytest.raises(BuildError, match="the list of the hub's wheels cannot be read: the hub does not serve"):
        machine.need("beta\n")


def test_a_full_disk_is_named(machine: Machine, tmp_path: Path) -> None:
    """The words of uv have it."""
    (tmp_path / "uv").write_text("#!/bin/sh\necho 'error: No space left on device (os error 28)' >&2; exit 2\n")
    (tmp_path / "uv").chmod(0o755)

    assert refused(machine, "alpha\n", PATH=f"{tmp_path}:{PATH}") == "No space left on device (os error 28)"


def test_a_damaged_lock_is_named(machine: Machine) -> None:
    """The words of uv have it."""
    with pytest.raises(BuildError, match=r"uv\.lock"):
        machine.provide("uv.lock", {"pyproject.toml": PROJECT, "uv.lock": UV_LOCK[:-30]})


def test_a_lock_that_does_not_resolve_is_named(machine: Machine) -> None:
    """One that names what no place has, or packages that exclude each other: the cause has the package."""
    removed = UV_LOCK.replace('version = "1.0"', 'version = "9.9"').replace("alpha-1.0-", "alpha-9.9-")
    with pytest.raises(BuildError, match=r"alpha.*9\.9"):
        machine.provide("uv.lock", {"pyproject.toml": PROJECT, "uv.lock": removed})
    excluded = PROJECT.replace('"alpha"', '"alpha", "beta<1"')
    with pytest.raises(BuildError, match="beta"):
        machine.provide("pyproject.toml", {"pyproject.toml": excluded})

    assert not [path for path in machine.cache.glob("*.*") if path.is_dir()]


@pytest.mark.nightly
def test_a_disk_that_fills_up_during_a_build_is_free_again(machine: Machine, capfd: pytest.CaptureFixture[str]) -> None:
    """The cause says so, nothing half done stays, and with more room the same environment is built."""
    need_root()
    noise = random.Random(7).randbytes(4 << 20).hex()  # noqa: S311  no secret
    machine.hub.add(wheel("large", "1.0", program=f"#!/bin/sh\n# {noise}\n"))
    machine.cache.mkdir()
    mount = ("mount", "-t", "tmpfs", "-o", "size=6m", "tmpfs", str(machine.cache))
    subprocess.run(mount, check=True)
    try:
        assert "No space left on device" in refused(machine, "large\n")
        subprocess.run(("mount", "-o", "remount,size=200m", str(machine.cache)), check=True)
        assert (machine.need("large\n") / "bin/large").exists()
    finally:
        # This process has locks there.
        subprocess.run(("umount", "--lazy", str(machine.cache)), check=True)
    assert "Traceback" not in capfd.readouterr().err


def test_a_missing_list_is_named(machine: Machine) -> None:
    """An operator may have removed the run."""
    with pytest.raises(BuildError, match="the list of packages cannot be read: the hub refuses"):
        machine.provide(f"{ARTIFACTS}/{LIST}")


def test_two_at_once_build_once(machine: Machine) -> None:
    """The second one waits, and has the same."""
    (machine.code / "requirements.txt").write_text("alpha\n")
    with ThreadPoolExecutor() as pool:
        found = {*pool.map(machine.provide, ["requirements.txt"] * 3)}

    assert len(found) == len(machine.said) == 1


def test_only_builds_wait_for_each_other(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody holds up the others by a look at what is there, or by its marks of use."""

    def check_lock(folder: Path) -> None:
        with folder.with_suffix(".lock").open("w") as building:
            fcntl.flock(building, fcntl.LOCK_EX | fcntl.LOCK_NB)

    monkeypatch.setattr(environments, "_touch", check_lock)
    found = machine.need("beta\n")
    monkeypatch.undo()

    with ThreadPoolExecutor() as pool, found.with_suffix(".lock").open("w") as building:
        fcntl.flock(building, fcntl.LOCK_EX)
        assert pool.submit(machine.need, "beta\n").result(timeout=20) == found


DAMAGES: Mapping[str, Callable[[Path], object]] = {
    "no list": lambda folder: (folder / LIST).unlink(),
    "no module": lambda folder: module(folder).unlink(),
    "cut module": lambda folder: module(folder).write_text(""),
    "no package": lambda folder: subprocess.run(
        ["rm", "-r", *folder.glob("lib/python*/site-packages/beta-*")], check=True
    ),
    "no Python": lambda folder: (folder / "bin/python").unlink(),
}


def module(folder: Path) -> Path:
    """Return a module of an environment, as a file of its own: uv shares files with what it keeps."""
    (path,) = folder.glob("lib/python*/site-packages/beta/__init__.py")
    text = path.read_text()
    path.unlink()
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(damage, id=name, marks=[] if name in {"no module", "no Python"} else pytest.mark.nightly)
        for name, damage in DAMAGES.items()
    ],
)
def test_a_damaged_environment_is_built_again(damage: Callable[[Path], object], machine: Machine) -> None:
    """Whoever uses it keeps what there is of it."""
    first = machine.need("alpha\n")
    damage(first)

    second = machine.need("alpha\n")

    assert first != second
    assert fault_of(first)
    assert packages(second) == "1.0 2.0 own"


def test_what_uv_keeps_damaged_is_fetched_again(machine: Machine) -> None:
    """A file that a cleaner has removed there is in no environment."""
    machine.need("alpha\n")
    for path in machine.cache.glob("uv/archive-*/**/beta/__init__.py"):
        path.unlink()

    assert packages(machine.need("alpha\nbeta\n")) == "1.0 2.0 own"


_PROVIDE = """
import sys
from pathlib import Path
from bedplate.programs.agent.environments import Environments
from bedplate.programs.connection import Connection
cache, code, url, certificate, token, path, index = sys.argv[1:]
hub = Connection(url, Path(certificate).read_text(), lambda _: token, "127.0.0.1")
variables = {"PATH": path, "UV_INDEX_URL": index}
print(Environments(Path(cache), hub, print).provide("requirements.txt", Path(code), variables), flush=True)
sys.stdin.read()
"""


@contextmanager
def other(machine: Machine) -> Iterator["subprocess.Popen[str]"]:
    """Yield another process that builds the same environment, and holds it."""
    url = f"https://{HOST}:{machine.hub.server_address[1]}"
    words = (str(machine.cache), str(machine.code), url, str(machine.hub.certificate), TOKEN, PATH, f"{AWAY}/simple")
    command, pipe = (sys.executable, "-c", _PROVIDE, *words), subprocess.PIPE
    with subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, text=True, start_new_session=True) as process:
        yield process
        process.kill()


@pytest.mark.parametrize("count", [2, pytest.param(60, marks=pytest.mark.nightly)])
def test_a_build_that_is_killed_leaves_nothing_half_done(count: int, machine: Machine) -> None:
    """At random moments: what has a list is whole, and the next build has all of it."""
    machine.code.joinpath("requirements.txt").write_text("alpha\n")
    pick = random.Random(count)  # noqa: S311  the same moments each time

    for number in range(count):
        machine.code.joinpath("requirements.txt").write_text(f"alpha\n#{number}\n")
        with other(machine) as process:
            time.sleep(pick.uniform(0.2, 1.2))
            os.kill(process.pid, signal.SIGKILL)
        found = machine.provide("requirements.txt")

        assert packages(found) == "1.0 2.0 own"
        assert not fault_of(found)


def test_old_environments_are_removed_and_used_ones_stay(machine: Machine) -> None:
    """Nobody has used one for 30 days; the other one is held by a run of that time."""
    machine.need("beta\n")
    machine.code.joinpath("requirements.txt").write_text("alpha\n")
    with other(machine) as process:
        assert process.stdout
        held = [process.stdout.readline() for _ in range(2)][1].strip()
        old = machine.cache / "0123.0"
        old.mkdir()
        for folder in (held, old):
            for path in (Path(folder) / LIST, Path(folder)):
                path.touch()
                os.utime(path, (1, 1))

        machine.need("beta==1.5\n")

        assert Path(held, LIST).exists()
        assert not old.exists()


def test_the_use_of_an_environment_is_seen_in_all_of_its_files(machine: Machine) -> None:
    """A cleaner removes files by their age, also those that nobody reads."""
    found = machine.need("beta\n")
    (path,) = found.glob("lib/python*/site-packages/beta/__init__.py")
    changed = path.stat().st_mtime
    for file in (path, found / LIST):
        os.utime(file, (1, file.stat().st_mtime if file == path else 1))

    machine.need("beta\n")

    assert min(path.stat().st_atime, (found / LIST).stat().st_mtime) > time.time() - 60
    assert path.stat().st_mtime == changed


def test_uv_comes_by_pip_where_an_image_has_none(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """By its hash, from the wheels of the hub."""
    name, content = wheel("uv", environments.UV, program=f'#!/bin/sh\nexec {Path(sys.executable).parent}/uv "$@"\n')
    machine.hub.add((name, content))

    monkeypatch.setattr(environments, "_UV_HASHES", (hashlib.sha256(content).hexdigest(),))
    found = machine.need("beta\n", PATH="/nonexistent")

    assert (machine.cache / f"uv-{environments.UV}/bin/uv").exists()
    assert (found / LIST).read_text() == "beta==2.0\n"


def test_the_hashes_of_uv_are_those_of_the_lock() -> None:
    """Machines and images have the same version."""
    lock = (ROOT / "roles/workbench/uv.txt").read_text()

    assert lock.startswith(f"uv=={environments.UV} ")
    assert all(known in lock for known in environments._UV_HASHES)  # noqa: SLF001  of this test alone


def shipped(hub: WheelHub, folder: Path, requirements: str, script: str, **given: object) -> AgentRun:
    """Return a run of a shell script whose code has requirements."""
    code = {"requirements.txt": requirements.encode()}
    run = AgentRun(hub, folder, code, ["sh", "-c", script], environment_file="requirements.txt", **given)
    run.environment = VARIABLES
    return run


def test_a_run_has_the_environment_of_its_code(hub: WheelHub, tmp_path: Path) -> None:
    """`python` is that of the environment, its programs are first, and the record has the list of packages."""
    script = 'python -c "import alpha; print(alpha.version)"; alpha; echo "$VIRTUAL_ENV"'
    run = shipped(hub, tmp_path / "ada-1", "alpha\n", script)

    assert run.run() == 0

    (folder,) = (tmp_path / "environments").glob("*.0")
    assert hub.log() == f"1.0\nalpha 1.0\n{folder}\n".encode()
    assert hub.files[f"{ARTIFACTS}/{LIST}"] == b"alpha==1.0\nbeta==2.0\n"
    assert "environment=" in hub.tags["times.0"]


def test_a_run_without_its_environment_ends_with_the_cause(hub: WheelHub, tmp_path: Path) -> None:
    """The program does not start, and the exit code is that of a run without code."""
    run = shipped(hub, tmp_path / "ada-1", "gamma\n", "true")

    assert run.run() == 203

    assert hub.tags["cause"].startswith("no environment: ")
    assert "gamma" in hub.tags["cause"]
    assert not hub.log()


def test_a_session_of_notebooks_says_that_jupyterlab_is_missing(hub: WheelHub, tmp_path: Path) -> None:
    """Its packages are of no file of the person's folder."""
    run = AgentRun(hub, tmp_path / "ada-1", {}, ["true"], session="jupyter")
    run.environment = VARIABLES
    run.prepare()
    (run.folder / "requirements.txt").write_text("gamma\n")

    assert run.end_of(run.agent("run", "--folder", str(run.folder))) == 203

    assert hub.tags["cause"].startswith("no environment: the packages of JupyterLab are missing: ")


def test_the_environment_is_there_before_the_run_has_gpus(hub: WheelHub, tmp_path: Path) -> None:
    """Then the next program of the unit starts; after a failure it does not, and the end has the cause."""
    good = shipped(hub, tmp_path / "ada-1", "alpha\n", "true")
    bad = shipped(hub, tmp_path / "ada-2", "gamma\n", "true")
    codes = []

    for run in (good, bad):
        run.prepare()
        words = ("prepare", "--folder", str(run.folder), "--", "touch", str(run.folder / "next"))
        codes.append(run.end_of(run.agent(*words)))

    assert codes == [0, 203]
    assert (good.folder / "next").exists()
    assert not (bad.folder / "next").exists()
    assert bad.end["cause"].startswith("no environment: ")
    assert json.loads((bad.folder / "end.json").read_text())["code"] == 203
