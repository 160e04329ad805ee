"""Every example is a valid fleet with the capacity that its name states."""

import os
import re
import shlex
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bedplate.catalog import load_catalog
from bedplate.checks.diagnostics import Level
from bedplate.cli import run
from bedplate.load import examine
from bedplate.plan.pools import PoolPlan
from bedplate.spec.groups import Market
from tests.testlab.rehearsal.programs import plan_of
from tests.testlab.run import ROOT as RUN_ROOT
from tests.testlab.run import block_commands, prose_commands

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.yaml"))


def pools(name: str) -> tuple[PoolPlan, ...]:
    """Return the pools of an example."""
    return plan_of(ROOT / "examples" / f"{name}.yaml").pools


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.stem)
def test_nothing_is_wrong_with_an_example(file: Path) -> None:
    """Not an error in any of them; what is merely risky, only the lab shows."""
    levels = [fault.level for fault in examine(file, load_catalog())]

    assert Level.ERROR not in levels
    assert not levels or file.stem.startswith("lab")


def test_the_box_is_one_machine() -> None:
    """With GPUs, and hours in which it runs."""
    (pool,) = pools("gpu-box")

    assert (pool.min, pool.max) == (1, 1)
    assert pool.tenure.schedule is not None


def test_the_training_run_stands_on_its_block_alone() -> None:
    """All of the block, on a fabric, and empty before it ends."""
    (block,) = (pool for pool in pools("training-block") if pool.group == "train")

    assert block.market is Market.CAPACITY_BLOCK
    assert (block.max, block.fabric is not None, block.offer.ends is not None) == (8, True, True)


def test_the_simulators_are_on_spot_in_four_regions() -> None:
    """Nowhere else, and of any type that is large enough."""
    every = pools("simulators")

    assert {pool.market for pool in every} == {Market.SPOT}
    assert len({pool.region for pool in every}) == 4
    assert all(pool.offer.similar for pool in every)


def test_graviton_is_all_there_is() -> None:
    """Of the pools and of the control plane."""
    plan = plan_of(ROOT / "examples" / "arm64.yaml")

    types = {name for pool in plan.pools for name in pool.types} | {
        plan.control_plane.type if plan.control_plane else ""
    }
    assert {load_catalog().types[name].arch for name in types} == {"arm64"}


PAGES = ("README.md", *sorted(f"docs/{page.name}" for page in (RUN_ROOT / "docs").glob("*.md")))


def told(text: str) -> Iterator[list[str]]:
    """Yield the words of each command of ours; what a shell makes of its output is left out."""
    for line in (*block_commands(text), *prose_commands(text)):
        # A word in capitals stands for any command.
        if re.match(r"bedplate [^A-Z]", line):
            yield shlex.split(re.split(r" [<>|&#]", line)[0], comments=True)[1:]


def faults(text: str, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Return what the command line says of a page's commands; help, asked for, is shown after options are read."""
    found = [(words, run([*words, "--help"]), capsys.readouterr().err.partition("\n")[0]) for words in told(text)]
    return [f"{shlex.join(words)}: {error}" for words, status, error in found if status]


@pytest.mark.parametrize("page", PAGES)
def test_every_command_of_a_page_is_taken(page: str, capsys: pytest.CaptureFixture[str]) -> None:
    """An option that was renamed leaves no page behind that tells of the former."""
    assert faults((RUN_ROOT / page).read_text(encoding="utf-8"), capsys) == []


def test_an_option_that_there_is_not_is_found(capsys: pytest.CaptureFixture[str]) -> None:
    """In prose and in a block, and a command likewise."""
    text = "Now `bedplate node list --lief`.\n\n```\nbedplate node aply x > y  # z\n```\n"

    assert [fault.partition(":")[0] for fault in faults(text, capsys)] == ["node aply x", "node list --lief"]


ASK_AWS = """
import boto3
from botocore.config import Config
once = Config(retries={"total_max_attempts": 1}, connect_timeout=2)
session = boto3.session.Session("key", "secret")
session.client("sts", "us-east-1", config=once).get_caller_identity()
"""


def test_a_connection_to_another_machine_fails_the_test() -> None:
    """192.0.2.1 belongs to nobody, so not even a broken guard would disturb anyone."""
    with pytest.raises(pytest.fail.Exception, match=r"would have reached 192\.0\.2\.1"):
        socket.create_connection(("192.0.2.1", 443), timeout=1)


def test_a_name_is_not_even_looked_up() -> None:
    """A question to a name server is a way out, too."""
    with pytest.raises(pytest.fail.Exception, match=r"would have reached sts\.amazonaws\.com"):
        socket.getaddrinfo("sts.amazonaws.com", 443)


def test_this_machine_can_be_reached() -> None:
    """Tests talk to servers that they start themselves."""
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        assert client.getpeername() == server.getsockname()


def test_a_child_that_calls_aws_is_turned_away() -> None:
    """The guard of this process is not in its children: there a proxy that leads nowhere stands in the way."""
    ended = subprocess.run([sys.executable, "-c", ASK_AWS], capture_output=True, text=True, check=False)

    assert "ProxyConnectionError" in ended.stderr


def test_no_test_sees_the_settings_of_whoever_runs_it() -> None:
    """A profile or key of theirs would make a test pass here and fail there, or worse."""
    assert {name for name in os.environ if name.startswith("AWS_")} == {
        "AWS_CONFIG_FILE",
        "AWS_EC2_METADATA_DISABLED",
        "AWS_SHARED_CREDENTIALS_FILE",
    }
