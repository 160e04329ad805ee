"""The commands of docs/vpn.md: from a fleet file to a laptop that reaches a machine of the site by name."""

import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from bedplate.cli import run
from tests.testlab.fakes.aws import ACCOUNT, StubbedSession, stubbed_account
from tests.testlab.fleets.variants import GATEWAY_ADDRESS, HOME, RESOLVERS
from tests.testlab.network.laptops import LaptopLab
from tests.testlab.rehearsal.programs import EXAMPLES
from tests.testlab.run import documented_commands

APPLIES = "bedplate node apply gate.cellar"
# These need a booted machine or AWS.
_ELSEWHERE = (
    "nmcli",
    "systemctl",
    "aws ",
    "--filters",
    "ssh-keygen",
    "Include",
    "Host",
    "ProxyCommand",
    "bedplate node",
)
ADA = "ada.laptop"
_NAMES = (f"{region}-{number}" for region in ("us-west-2", "us-east-1", "eu-north-1") for number in (1, 2))
NO_TUNNELS = f"error: gate.cellar: tunnels {', '.join(_NAMES)} not configured: run `bedplate vpn tunnels`"
pytestmark = [pytest.mark.nightly, pytest.mark.xdist_group("laptops-reach")]


@pytest.fixture
def account(monkeypatch: pytest.MonkeyPatch) -> Iterator[StubbedSession]:
    """Return an AWS account with the gateway and the resolver at home."""
    with stubbed_account(monkeypatch) as session:
        session.belongs_to(ACCOUNT, HOME)
        filters = [{"Name": "tag:Name", "Values": ["lab-laptops"]}]
        session.answers(
            "ec2", HOME, "describe_addresses", {"Addresses": [{"PublicIp": str(GATEWAY_ADDRESS)}]}, Filters=filters
        )
        named = [{"Name": "Name", "Values": ["lab-names"]}, {"Name": "Direction", "Values": ["INBOUND"]}]
        endpoints = {"ResolverEndpoints": [{"Id": "r"}]}
        session.answers("route53resolver", HOME, "list_resolver_endpoints", endpoints, Filters=named)
        addresses = {"IpAddresses": [{"Ip": str(resolver)} for resolver in RESOLVERS]}
        session.answers(
            "route53resolver", HOME, "list_resolver_endpoint_ip_addresses", addresses, ResolverEndpointId="r"
        )
        yield session


def test_the_commands_of_the_page_work(
    account: StubbedSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """All in their order, except roles, NetworkManager and systemd, which need a booted machine (tests/nodes)."""
    # The page shows how to add a person twice.
    commands = tuple(dict.fromkeys(documented_commands("vpn.md")))
    assert APPLIES in commands
    shutil.copy(EXAMPLES / "lab.yaml", tmp_path / "fleet.yaml")
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh/lab-first").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    with LaptopLab("page", ADA) as lab:
        lab.answer_names()
        monkeypatch.setenv("PATH", f"{lab.shell(tmp_path / 'tools')}:/usr/sbin:/usr/bin:/sbin:/bin")
        for command in commands:
            if command == APPLIES:
                lab.forget()
            elif command.startswith(_ELSEWHERE):
                continue
            elif command.startswith("bedplate"):
                _run_command(command, tmp_path, capsys, lab)
            else:
                lab.laptops[ADA].type(command, tmp_path)

        (session,) = lab.gateways["us-west-2"].status["laptops"]["udp"]
        assert (session["name"], session["address"]) == (ADA, "10.121.0.2")


def _run_command(command: str, folder: Path, capsys: pytest.CaptureFixture[str], lab: LaptopLab) -> None:
    """Run a command of the operator, with its redirection."""
    words, _, target = command.partition(" > ")
    capsys.readouterr()

    # The only finding is that the site's gateway has no tunnels here.
    status = run(shlex.split(words.replace("~", str(folder)))[1:])
    if words == "bedplate vpn status":
        output = capsys.readouterr().out
        assert [line for line in output.splitlines() if line.startswith(("error", "warning"))] == [NO_TUNNELS]
    else:
        assert status == 0, (command, capsys.readouterr().err)

    if target:
        (folder / target).write_text(capsys.readouterr().out)
    if words.startswith("bedplate vpn sync"):
        lab.serve()
