"""The project itself: its examples, the commands in its documents, and the network isolation of tests."""

import os
import re
import shlex
import socket
import subprocess
import sys
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path

import pytest

from bedplate.catalog import load_catalog
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
def test_an_example_has_no_faults(file: Path) -> None:
    """A warning that is meant is allowed in the file, with its reason."""
    assert not examine(file, load_catalog())


def test_the_gpu_box_is_one_machine_with_a_schedule() -> None:
    """Its only pool has one machine."""
    (pool,) = pools("gpu-box")

    assert (pool.min, pool.max) == (1, 1)
    assert pool.group_spec.schedule is not None


def test_the_training_group_uses_only_its_capacity_block() -> None:
    """The group uses the whole block, with a fabric, and the pool has an end."""
    (block,) = (pool for pool in pools("training-block") if pool.group == "train")

    assert block.market is Market.CAPACITY_BLOCK
    assert (block.max, block.fabric is not None, block.rung_spec.ends is not None) == (8, True, True)


def test_the_simulators_use_spot_in_four_regions() -> None:
    """Every pool also uses similar types."""
    simulators = pools("simulators")

    assert {pool.market for pool in simulators} == {Market.SPOT}
    assert len({pool.region for pool in simulators}) == 4
    assert all(pool.group_spec.similar for pool in simulators)


def test_the_arm64_example_has_only_arm64_types() -> None:
    """In its pools and in its control plane."""
    plan = plan_of(ROOT / "examples" / "arm64.yaml")

    types = {name for pool in plan.pools for name in pool.types} | {
        plan.control_plane.type if plan.control_plane else ""
    }
    assert {load_catalog().types[name].arch for name in types} == {"arm64"}


OFFICE = ROOT / "examples" / "office.yaml"


def test_the_office_has_its_hub_and_the_copies_on_two_machines_of_the_site() -> None:
    """Its cloud machines make `check` say what the hub lacks, unless the file allows it."""
    hub = plan_of(OFFICE).hub

    assert hub
    assert hub.backup
    assert (hub.node, f"{hub.backup.machine}.{hub.backup.site}") == ("vault.attic", "nas.attic")
    assert (hub.region, hub.bucket) == (None, None)


def test_a_hub_of_a_site_is_warned_about_without_a_reason(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The warning names what such a hub lacks; a file without groups has no such warning."""
    text = re.sub("  W656: .*\n", "", OFFICE.read_text())
    (tmp_path / "fleet.yaml").write_text(text)
    site_only = re.sub("groups:\n(?:  .*\n)+", "", re.sub("  W360: .*\n", "", text)).replace("allow:\n", "")
    (tmp_path / "site.yaml").write_text(site_only)

    run(["check", str(tmp_path / "fleet.yaml")])
    warned = capsys.readouterr().out
    run(["check", str(tmp_path / "site.yaml")])

    assert "W656 hub-outside-aws" in warned
    assert "W656" not in capsys.readouterr().out


@pytest.mark.nightly
def test_the_office_is_drawn_priced_rehearsed_and_reached(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A machine of its group reaches the hub through the tunnel of the site."""
    office = str(OFFICE)

    assert run(["plan", office, "--svg", str(tmp_path / "office.svg")]) == 0
    assert run(["cost", office]) == 0
    assert run(["rehearse", office]) == 0
    assert run(["reach", "more-1.eu-north-1", "hub", "--port", "443", "--fleet", office]) == 0
    assert "by VPN connection office-attic-eu-north-1" in capsys.readouterr().out
    assert ">hub<" in (tmp_path / "office.svg").read_text()


PAGES = ("README.md", *sorted(f"docs/{page.name}" for page in (RUN_ROOT / "docs").glob("*.md")))


def bedplate_commands(text: str) -> Iterator[list[str]]:
    """Yield the words of each bedplate command, without pipes and redirections."""
    for line in (*block_commands(text), *prose_commands(text)):
        # A word in capitals is a placeholder.
        if re.match(r"bedplate [^A-Z]", line):
            yield shlex.split(re.split(r" [<>|&#]", line)[0], comments=True)[1:]


def command_errors(text: str, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Return the errors of the commands in a text; `--help` makes them parse their options and do nothing."""
    results = [
        # After "--" is a command for another machine.
        (words, run([*takewhile("--".__ne__, words), "--help"]), capsys.readouterr().err.partition("\n")[0])
        for words in bedplate_commands(text)
    ]
    return [f"{shlex.join(words)}: {error}" for words, status, error in results if status]


@pytest.mark.parametrize("page", PAGES)
def test_every_command_of_a_page_is_valid(page: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Pages do not use old names of commands and options."""
    assert command_errors((RUN_ROOT / page).read_text(encoding="utf-8"), capsys) == []


def test_an_unknown_command_or_option_is_found(capsys: pytest.CaptureFixture[str]) -> None:
    """Both in text and in code blocks."""
    text = "Now `bedplate node list --lief`.\n\n```\nbedplate node aply x > y  # z\n```\n"

    assert [error.partition(":")[0] for error in command_errors(text, capsys)] == ["node aply x", "node list --lief"]


PLAIN_PAGES = ("README.md", *(f"docs/{name}.md" for name in (
    "get-started", "fleet-file", "machines", "kubernetes", "capacity", "monitoring", "researchers"
)))  # fmt: skip
MAX_WORDS = 25


def sentences(text: str) -> Iterator[str]:
    """Yield the sentences of a page without its headings, tables and code blocks; a code span counts as one word."""
    text = re.sub(r"^```.*?^```$", "\n", text, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"^(?:#|\||!\[).*$", "\n", text, flags=re.MULTILINE)
    text = re.sub(r"^ *(?:-|\d+\.) ", "\n\n", text, flags=re.MULTILINE)
    text = re.sub(r"`[^`]+`", "CODE", re.sub(r"\[([^\]]+)\]\([^)]+\)", r"[\1]", text))
    for paragraph in re.split(r"\n\s*\n", text):
        yield from re.split(r"(?<=[.!?])[)*\]]*\s+(?=[^a-z])", " ".join(paragraph.split()))


def long_sentences(text: str) -> list[str]:
    """Return the sentences of a page that are too long."""
    return [sentence for sentence in sentences(text) if len(re.findall(r"\S*\w\S*", sentence)) > MAX_WORDS]


@pytest.mark.parametrize("page", PLAIN_PAGES)
def test_pages_for_users_have_short_sentences(page: str) -> None:
    """A sentence has at most 25 words, because many readers are not native speakers."""
    assert long_sentences((RUN_ROOT / page).read_text(encoding="utf-8")) == []


def test_a_long_sentence_is_found() -> None:
    """Only sentences of prose count: table rows, code and list items are separate."""
    long = "Word" + " word" * 25
    text = f"# Title\n\nShort. {long}.\n\n| {long} |\n\n```\n{long}\n```\n\n- {long[:-5]}.\n- Short, `{long}`.\n"

    assert long_sentences(text) == [f"{long}."]


ASK_AWS = """
import boto3
from botocore.config import Config
once = Config(retries={"total_max_attempts": 1}, connect_timeout=2)
session = boto3.session.Session("key", "secret")
session.client("sts", "us-east-1", config=once).get_caller_identity()
"""


def test_a_connection_to_another_machine_fails_the_test() -> None:
    """192.0.2.1 is a documentation address, so a broken guard would not disturb anyone."""
    with pytest.raises(pytest.fail.Exception, match=r"would have reached 192\.0\.2\.1"):
        socket.create_connection(("192.0.2.1", 443), timeout=1)


def test_a_name_lookup_fails_the_test() -> None:
    """A DNS query leaves the machine too."""
    with pytest.raises(pytest.fail.Exception, match=r"would have reached sts\.amazonaws\.com"):
        socket.getaddrinfo("sts.amazonaws.com", 443)


def test_connections_to_this_machine_are_allowed() -> None:
    """Tests connect to servers that they start."""
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        assert client.getpeername() == server.getsockname()


def test_a_child_process_cannot_call_aws() -> None:
    """Child processes have an unreachable proxy instead of the guard."""
    process = subprocess.run([sys.executable, "-c", ASK_AWS], capture_output=True, text=True, check=False)

    assert "ProxyConnectionError" in process.stderr


def test_tests_do_not_see_aws_settings_of_the_user() -> None:
    """Tests must not use real credentials, and must not depend on a profile."""
    assert {name for name in os.environ if name.startswith("AWS_")} == {
        "AWS_CONFIG_FILE",
        "AWS_EC2_METADATA_DISABLED",
        "AWS_SHARED_CREDENTIALS_FILE",
    }
