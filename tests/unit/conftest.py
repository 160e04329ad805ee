"""What tests share: the lab's file with its authority, gateways and account; what a node of each system answers."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from bedplate.cli import run
from tests.testlab.fakes.aws import ACCOUNT, StubbedSession, stubbed_account
from tests.testlab.fakes.gateway import shell_to
from tests.testlab.fakes.node import SYSTEMS, Recorded, recorded
from tests.testlab.keys.authority import begun_in
from tests.testlab.keys.operator import HOSTS
from tests.testlab.rehearsal.programs import EXAMPLES
from tests.testlab.run import need_program
from vpn.pki import PkiFolder, folder_of

_HOME = "us-west-2"


@pytest.fixture
def folder(tmp_path: Path) -> PkiFolder:
    """Return the folder of an authority that has issued nothing."""
    return begun_in(tmp_path)


@pytest.fixture(params=SYSTEMS)
def system(request: pytest.FixtureRequest) -> Recorded:
    """Give what a node of each distribution answers."""
    return recorded(request.param)


@pytest.fixture
def lab(tmp_path: Path) -> Path:
    """Give a copy of the lab's file in a folder of its own."""
    (tmp_path / "fleet").mkdir()
    return Path(shutil.copy(EXAMPLES / "lab.yaml", tmp_path / "fleet" / "fleet.yaml"))


@pytest.fixture
def here(lab: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give that copy, in the folder from which commands are run."""
    monkeypatch.chdir(lab.parent)
    return lab


@pytest.fixture
def begun(lab: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """Give the lab's file with an authority beside it."""
    assert run(["vpn", "init", str(lab)]) == 0
    capsys.readouterr()
    return lab


@pytest.fixture
def gateways(begun: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give the folder of both gateways, which trust the lab's authority and have let nobody in yet."""
    need_program("openssl")
    hosts = tmp_path / "hosts"
    for host in HOSTS.values():
        (hosts / host).mkdir(parents=True)
        shutil.copy(folder_of(begun).authority, hosts / host / "ca.crt")
    shell_to(hosts, monkeypatch)
    return hosts


@pytest.fixture
def account(monkeypatch: pytest.MonkeyPatch) -> Iterator[StubbedSession]:
    """Give the account of the examples, whose answers a test prepares."""
    with stubbed_account(monkeypatch) as session:
        session.belongs_to(ACCOUNT, _HOME)
        yield session
