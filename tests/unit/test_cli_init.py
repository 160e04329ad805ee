"""`bedplate init`: a fleet folder from an example, and the search for the fleet file."""

import io
import re
import runpy
import subprocess
from pathlib import Path
from socket import create_server

import pulumi
import pytest
from pulumi.runtime.settings import Settings, configure

from bedplate.catalog import load_catalog
from bedplate.cli import run
from bedplate.folder.example import EXAMPLES, example_names, time_zone
from bedplate.operate import new_folder
from tests.testlab.engine.lab import replace_gpus

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIIWf215vwmBI2zNzecqhVbLRbuxkKq4oqpkUVYbswznn"
VALUES = ["--account", "210987654321", "--owner", "head@uni.edu", "--person", "bob", "--key", KEY]
GATEWAY = ["--gateway", "9.9.9.9"]
OF_EXAMPLE = {"lab": GATEWAY, "office": GATEWAY, "training-block": ["--reservation", "cr-00000000000000001"]}
# Account, reservation, gateway, names and keys that the examples have.
EXAMPLE_VALUE = re.compile(r"111122223333|cr-0123|8\.20\.30\.40|lab\.example|\bada\b|\bgrace\b")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder that does not exist yet; there are no AWS settings, and nobody is logged in to git."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
    monkeypatch.chdir(tmp_path)
    return tmp_path / "mylab"


@pytest.mark.parametrize("example", example_names())
def test_a_filled_example_is_valid_and_has_no_example_value(folder: Path, example: str) -> None:
    """For each example, with comments kept."""
    assert run(["init", str(folder), "--example", example, *VALUES, *OF_EXAMPLE.get(example, [])]) == 0

    text = (folder / "fleet.yaml").read_text()
    assert EXAMPLE_VALUE.findall(text) == []
    assert text.startswith((EXAMPLES / f"{example}.yaml").read_text().splitlines()[0])
    assert run(["check", str(folder / "fleet.yaml")]) == 0


def test_an_example_of_one_region_moves_to_another(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Zones and clock are those of that region; one without the machine type is refused with those that have it."""
    assert run(["init", str(folder), *VALUES, "--region", "us-west-2"]) == 0
    assert "eu-north-1" not in (folder / "fleet.yaml").read_text()

    assert "MON-FRI, zone: America/Los_Angeles}" in (folder / "fleet.yaml").read_text()

    assert run(["init", "other", *VALUES, "--region", "af-south-1"]) == 2
    assert "af-south-1 does not offer g6e.xlarge in 2 zones" in capsys.readouterr().err


def test_every_region_has_a_time_zone() -> None:
    """A machine would stop in the working hours of another continent."""
    catalog = load_catalog()
    zones = {region: time_zone(region) for region in catalog.regions}
    assert set(zones.values()) <= catalog.time_zones - {"Etc/UTC"}
    assert time_zone("xx-new-1") == "Etc/UTC"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "missing values: --account, --owner, "),
        ([*VALUES, "--account", "12"], "account"),
        ([*VALUES, "--example", "gpubox"], "write gpu-box"),
        ([*VALUES, "--gateway", "9.9.9.9"], "the example has no value for --gateway"),
        ([*VALUES, "--example", "lab"], "missing values: --gateway"),
        ([*VALUES, "--key", "nowhere.pub"], "cannot read the public key"),
        ([*VALUES, "--example", "lab", "--gateway", "office"], "sites.cellar.gateway.public"),
        ([*VALUES, "--owner", r"me\9@uni.edu"], "owner"),
    ],
)
def test_an_invalid_value_writes_nothing(
    folder: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    """The status is 2, and the folder does not exist afterwards."""
    assert run(["init", str(folder), *arguments]) == 2

    assert message in capsys.readouterr().err
    assert not folder.exists()


@pytest.mark.parametrize(
    ("option", "value"), [("--person", "root"), ("--owner", "me"), ("--domain", "foo"), ("--key", "not a key")]
)
def test_an_invalid_value_names_its_option(
    folder: Path, capsys: pytest.CaptureFixture[str], option: str, value: str
) -> None:
    """The operator sees no fleet file in which to look up a key such as `budget.email`."""
    run(["init", str(folder), *VALUES, option, value])
    assert f"  in   {option} (" in capsys.readouterr().err


class _Answers:
    """The operator at a terminal, who answers with these texts; an empty one is Enter."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *texts: str) -> None:
        self.asked: list[tuple[str, str]] = []
        answers = iter(texts)

        def prompt(question: str, default: str, **_: object) -> str:
            self.asked.append((question, default))
            return next(answers) or default

        monkeypatch.setattr("typer.prompt", prompt)
        monkeypatch.setattr("sys.stdin", TerminalInput())


class TerminalInput(io.StringIO):
    """A terminal."""

    def isatty(self) -> bool:
        """Return that it is one."""
        return True


def test_a_terminal_without_aws_settings_offers_the_region_of_the_example(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Enter takes it; each question has an example value, and root is not offered as a user."""
    monkeypatch.setenv("LOGNAME", "root")
    terminal = _Answers(monkeypatch, "", "210987654321", "head@uni.edu", "", "bob", KEY, "")

    assert run(["init", str(folder)]) == 0
    assert dict(terminal.asked)["AWS region, such as us-west-2"] == "eu-north-1"
    assert dict(terminal.asked)["Your user name, such as bob"] == ""
    assert all(", such as " in question for question, _ in terminal.asked)


def test_init_says_that_it_waits_for_aws_and_how_long(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """AWS accepts the connection and answers nothing: the account is missing after the time that init names."""
    with create_server(("127.0.0.1", 0)) as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{server.getsockname()[1]}")
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "x")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")
        monkeypatch.setattr(new_folder, "_ANSWER", 0.2)

        assert run(["init", str(folder), *VALUES[2:]]) == 2

    lines = capsys.readouterr().err.splitlines()
    assert lines[:3] == [
        "asking AWS for the account of your credentials: at most 0.2 s; --account ID avoids it",
        "no account from AWS: no answer within 0.2 s",
        "error: missing values: --account",
    ]


@pytest.mark.parametrize(
    "case",
    [
        ("account", "12", "error: E412"),
        ("region", "us-west-9", "unknown AWS region us-west-9"),
        ("region", "af-south-1", "af-south-1 does not offer g6e.xlarge in 2 zones"),
        ("person", "root", "error: E503"),
        ("key", "nowhere.pub", "cannot read the public key"),
        ("owner", "me", "invalid e-mail address me"),
    ],
)
def test_a_wrong_answer_is_asked_again_at_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], case: tuple[str, str, str]
) -> None:
    """Right after it, before the next question; the third wrong answer ends the command."""
    option, wrong, message = case
    given = {"account": "210987654321", "owner": "head@uni.edu", "person": "bob", "key": KEY, "region": "us-west-2"}
    options = [word for name, value in given.items() if name != option for word in (f"--{name}", value)]
    _Answers(monkeypatch, wrong, given[option])
    assert run(["init", str(folder), "--name", "lab", "--domain", "lab.internal", *options]) == 0
    assert message in capsys.readouterr().err

    _Answers(monkeypatch, wrong, wrong, wrong)
    assert run(["init", "other", "--name", "lab", "--domain", "lab.internal", *options]) == 2
    assert capsys.readouterr().err.count(message) == 3


def test_a_value_without_an_answer_is_asked_three_times(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Enter without a default is no answer; the command names the option and ends."""
    options = [*VALUES[2:], "--name", "lab", "--domain", "lab.internal", "--region", "us-west-2"]
    terminal = _Answers(monkeypatch, "", "", "", "")
    assert run(["init", str(folder), *options]) == 2
    assert (len(terminal.asked), "missing values: --account" in capsys.readouterr().err) == (3, True)


def test_only_an_empty_folder_or_git_repository_is_filled(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Files of an operator are never overwritten."""
    (folder / ".git").mkdir(parents=True)
    assert run(["init", str(folder), *VALUES]) == 0

    assert run(["init", str(folder), *VALUES]) == 2
    assert "the folder is not empty: .github, .gitignore, .venv, ..." in capsys.readouterr().err


def test_committed_files_name_no_path_of_this_machine(folder: Path) -> None:
    """The only one is the link `.venv`, which git ignores and a colleague makes with `init --link`."""
    run(["init", str(folder), *VALUES])
    texts = [file.read_text() for file in folder.rglob("*") if file.is_file() and ".venv" not in file.parts]
    assert [text for text in texts if str(EXAMPLES.parent) in text] == []
    (folder / ".venv").unlink()

    assert run(["init", str(folder), "--link"]) == 0
    assert (folder / ".venv/bin").is_dir()


def test_pulumi_runs_the_program_of_the_folder(folder: Path) -> None:
    """The stack's name selects the part of the folder's fleet file."""
    run(["init", str(folder), *VALUES])
    replace_gpus(folder / "fleet.yaml")
    pulumi.runtime.set_all_config({"bedplate:fleet": "fleet.yaml"}, [])
    configure(Settings(project="bedplate", stack="mylab.nowhere"))

    with pytest.raises(pulumi.RunError, match=r"not recorded in fleet\.lock"):
        runpy.run_path(str(folder / "__main__.py"), run_name="__main__")


def test_commands_find_the_fleet_file_from_a_subfolder(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The file of the nearest parent folder; a file named by the operator is never searched."""
    run(["init", str(folder), *VALUES])
    monkeypatch.chdir(folder / ".github/workflows")

    assert run(["check"]) == 0
    assert "../../fleet.yaml is valid" in capsys.readouterr().out
    assert run(["check", "other.yaml"]) == 2


def test_the_workflow_runs_pinned_code_and_text_cannot_end_its_code_block(folder: Path) -> None:
    """A tag or a branch can be moved to other code; a fence would end at the text of a pull request."""
    assert run(["init", str(folder), *VALUES]) == 0
    text = (folder / ".github/workflows/fleet.yml").read_text()
    assert all(re.search(r"@[0-9a-f]{40}  # v", line) for line in text.splitlines() if "uses:" in line)
    assert 'checkout --quiet --detach "$COMMIT"' in text
    (function,) = re.findall(r"^ +report\(\) \{\n.*?^ +\}\n", text, re.MULTILINE | re.DOTALL)
    hostile = r"hostile() { printf 'x\n```\r```\n\n# heading\n<b>'; }"
    program = f"{hostile}\n{function}report hostile"
    shown = subprocess.run(["bash", "-c", program], capture_output=True, text=True, check=True).stdout

    assert shown.startswith("### `hostile`\n\n    x\n")
    assert all(line.startswith("    ") for line in shown.splitlines()[2:] if line)


def test_values_are_written_as_given(tmp_path: Path) -> None:
    """Also those that contain the name of the example's person."""
    owner, key = "ada.b@ada.org", f"{KEY} ada@laptop"
    values = ["--name", "lab", "--account", "210987654321", "--region", "us-west-2", "--domain", "ada.internal"]

    assert run(["init", str(tmp_path / "lab"), *values, "--owner", owner, "--person", "bob", "--key", key]) == 0

    text = (tmp_path / "lab/fleet.yaml").read_text()
    assert [word for word in (f"owner: {owner}", "domain: ada.internal", "  bob: ", key) if word not in text] == []
