"""Fixtures for unit tests: a copy of the lab's fleet file, its certificate authority, gateways and AWS account."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from bedplate.cli import run
from tests.testlab.fakes.apply import FakeApply
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
    """Return the folder of a new certificate authority without certificates."""
    return begun_in(tmp_path)


@pytest.fixture(params=SYSTEMS)
def system(request: pytest.FixtureRequest) -> Recorded:
    """Return the recorded facts of a node, for each distribution."""
    return recorded(request.param)


@pytest.fixture
def lab(tmp_path: Path) -> Path:
    """Return a copy of examples/lab.yaml in its own folder."""
    (tmp_path / "fleet").mkdir()
    return Path(shutil.copy(EXAMPLES / "lab.yaml", tmp_path / "fleet" / "fleet.yaml"))


@pytest.fixture
def here(lab: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return that copy, with its folder as the current one."""
    monkeypatch.chdir(lab.parent)
    return lab


@pytest.fixture
def begun(lab: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """Return that copy, with a certificate authority in its folder."""
    assert run(["vpn", "init", str(lab)]) == 0
    capsys.readouterr()
    return lab


@pytest.fixture
def gateways(begun: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of both laptop gateways, which have the certificate authority and no laptops."""
    need_program("openssl")
    hosts = tmp_path / "hosts"
    for host in HOSTS.values():
        (hosts / host).mkdir(parents=True)
        shutil.copy(folder_of(begun).authority, hosts / host / "ca.crt")
    shell_to(hosts, monkeypatch)
    return hosts


@pytest.fixture
def applies(monkeypatch: pytest.MonkeyPatch) -> FakeApply:
    """Return the fake that takes the place of applies."""
    fake = FakeApply()
    monkeypatch.setattr("bedplate.operate.apply.run_apply", fake.run)
    return fake


@pytest.fixture
def account(monkeypatch: pytest.MonkeyPatch) -> Iterator[StubbedSession]:
    """Yield the simulated AWS account of the examples, whose answers a test prepares."""
    with stubbed_account(monkeypatch) as session:
        session.belongs_to(ACCOUNT, _HOME)
        yield session
