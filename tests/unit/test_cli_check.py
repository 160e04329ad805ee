"""`bedplate check`, `bedplate schema` and the help texts."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bedplate import __version__
from bedplate.catalog import load_catalog
from bedplate.cli import run
from bedplate.cli.app import COMMANDS, GROUPS
from bedplate.load import FleetFaults, load_fleet
from bedplate.report.rules import ALL_RULES
from tests.conftest import Expect

ROOT = Path(__file__).parents[2]
GPU_MACHINES = [f"workbench-gpu-{number}.{region}" for number in range(1, 9) for region in ("us-west-2", "us-east-1")]
FAULTY = "tests/data/cli/faulty.yaml"


@pytest.fixture(autouse=True)
def at_root(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run in the project's folder, so that messages contain relative paths."""
    monkeypatch.chdir(ROOT)


def test_a_valid_file_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    """The result of a valid file is one line, and the status is 0."""
    assert run(["check", "examples/minimal.yaml"]) == 0

    assert capsys.readouterr().out.splitlines()[-1].startswith("examples/minimal.yaml is valid (")


def test_warnings_do_not_change_the_status(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Warnings are printed, and the status is 0."""
    file = tmp_path / "fleet.yaml"
    file.write_text(Path("examples/lab.yaml").read_text().replace("    expires: permanent", "    #"), encoding="utf-8")

    assert run(["check", str(file)]) == 0

    out = capsys.readouterr().out
    assert [code for code in ("W330", "W325", "E3") if f" {code}" in out] == ["W330"]
    assert out.splitlines()[-1].startswith(f"1 warning in {file} (")


def test_check_names_all_that_a_deployment_needs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In one pass, as no warning: the faults are those with which `up` refuses the file."""
    text = Path("examples/gpu-box.yaml").read_text().replace("111122223333", "210987654321")
    (file := tmp_path / "fleet.yaml").write_text(text, encoding="utf-8")

    assert run(["check", str(file)]) == 0

    *_, last = capsys.readouterr().out.splitlines()
    needs = "E417 example-value, E419 unverified-checksum"
    assert last.startswith(f"{file} is valid (")
    assert f"; `up` needs: {needs}; details: `bedplate check --explain E41" in last
    assert run(["check", str(file), "--json"]) == 0
    reported = json.loads(capsys.readouterr().out)["faults"]
    assert {fault["level"] for fault in reported} == {"deployment"}
    with pytest.raises(FleetFaults) as refused:
        load_fleet(file, load_catalog(), part="shared")
    assert [(fault.code, fault.key) for fault in refused.value.faults] == [
        (fault["code"], fault["key"]) for fault in reported
    ]


def test_a_fleet_file_can_come_from_stdin() -> None:
    """As `-`, with the lock of the current folder."""
    command = [sys.executable, "-m", "bedplate", "check", "-"]

    ended = subprocess.run(command, input=b"version: 1\nnam: x\n", capture_output=True, check=False)

    assert ended.returncode == 2
    assert b"-:2:1   nam " in ended.stdout


def test_every_fault_has_its_place_and_fix(expect: Expect, capsys: pytest.CaptureFixture[str]) -> None:
    """All faults are printed on stdout at once, with status 2."""
    assert run(["check", FAULTY]) == 2

    out, err = capsys.readouterr()
    expect("cli/check-faulty.txt", out)
    assert err == ""


def test_json_contains_the_same_faults(capsys: pytest.CaptureFixture[str]) -> None:
    """One document on stdout, with the documented keys."""
    assert run(["check", FAULTY, "--json"]) == 2

    faults = json.loads(capsys.readouterr().out)["faults"]
    assert {tuple(sorted(fault)) for fault in faults} == {
        ("code", "column", "file", "fix", "key", "level", "line", "message")
    }
    assert {fault["key"] for fault in faults} >= {"regions.us-esat-1", "groups.train.types.0"}


def test_json_of_a_valid_file_has_an_empty_list(capsys: pytest.CaptureFixture[str]) -> None:
    """The key `faults` is always there."""
    assert run(["check", "examples/minimal.yaml", "--json"]) == 0

    assert json.loads(capsys.readouterr().out) == {"faults": []}


@pytest.mark.parametrize(
    ("text", "place", "reason"),
    [
        ('{"version": 1,\n"fleet"}', (2, 8), "it is incomplete or was edited"),
        ("{\n<<<<<<< ours\n}", (2, 1), "it has an unfinished merge"),
        ('{"version": 1, "fleet": "other", "blocks": {}}', (1, 1), "it belongs to fleet 'other'"),
    ],
)
def test_an_invalid_lock_is_a_fault_with_its_place(
    text: str, place: tuple[int, int], reason: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The document of --json names the lock, with line and column."""
    (tmp_path / "fleet.yaml").write_bytes((ROOT / "examples/minimal.yaml").read_bytes())
    (tmp_path / "fleet.lock").write_text(text, encoding="utf-8")

    assert run(["check", str(tmp_path / "fleet.yaml"), "--json"]) == 2

    (fault,) = json.loads(capsys.readouterr().out)["faults"]
    assert (fault["code"], fault["file"]) == ("E290", str(tmp_path / "fleet.lock"))
    assert (fault["line"], fault["column"]) == place
    assert reason in fault["message"]


def test_fleet_yaml_is_the_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without an argument a command reads fleet.yaml."""
    (tmp_path / "fleet.yaml").write_bytes((ROOT / "examples/minimal.yaml").read_bytes())
    monkeypatch.chdir(tmp_path)

    assert run(["check"]) == 0
    assert capsys.readouterr().out.startswith("fleet.yaml is valid (")


def test_a_missing_file_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    """The exit status is 2, and the message has the path."""
    assert run(["check", "no/such.yaml"]) == 2

    assert "no/such.yaml" in capsys.readouterr().out


@pytest.mark.parametrize("folder", [".", "/", ""])
def test_a_folder_is_not_a_fleet_file(folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Status 2, also for the folders whose path has no name."""
    assert run(["check", folder]) == 2

    assert "E002 not-a-file" in capsys.readouterr().out


@pytest.mark.parametrize("code", sorted(ALL_RULES))
def test_every_rule_can_be_explained(code: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The explanation contains the reason."""
    assert run(["check", "--explain", code]) == 0

    out = capsys.readouterr().out
    assert out.startswith(f"{code} {ALL_RULES[code].name} ")
    assert ALL_RULES[code].reason in out


def test_all_rules_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    """One line for each rule, their number, and the meaning of the letters."""
    assert run(["check", "--explain", "all"]) == 0

    assert len(capsys.readouterr().out.splitlines()) == len(ALL_RULES) + 2


def test_an_unknown_rule_is_refused_with_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    """Status 2, with the most similar code."""
    assert run(["check", "--explain", "e301"]) == 2

    assert "write E301" in capsys.readouterr().err


def test_the_schema_is_one_document(capsys: pytest.CaptureFixture[str]) -> None:
    """The output is a JSON Schema."""
    assert run(["schema"]) == 0

    schema = json.loads(capsys.readouterr().out)
    assert schema["$schema"].startswith("https://json-schema.org/")
    assert {"regions", "groups", "storage"} <= schema["properties"].keys()


def test_every_key_of_the_schema_has_the_effect_of_an_edit(capsys: pytest.CaptureFixture[str]) -> None:
    """By event. Only keys of tables of other keys have none."""
    run(["schema"])

    schema = json.loads(capsys.readouterr().out)
    models = {"Fleet": schema, **schema["$defs"]}
    keys = {
        f"{model}.{name}": key for model, part in models.items() for name, key in part.get("properties", {}).items()
    }
    documented = {name for name, key in keys.items() if "x-update" in key}
    assert keys["Group.disk"]["x-update"]["changed"].startswith("new nodes only: ")
    assert set(keys["Fleet.groups"]["x-update"]) == {"added", "removed"}
    assert {name for name in keys.keys() - documented if "$ref" not in keys[name]} == set()


EVERY_COMMAND = {command.name: command for command in COMMANDS} | {
    f"{group} {command.name}": command for group, (_, commands) in GROUPS.items() for command in commands
}


@pytest.mark.parametrize("words", EVERY_COMMAND)
def test_the_help_of_a_command_shows_its_summary_and_an_example(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The help of a command repeats its summary from the list of all commands, and ends with an example."""
    command = EVERY_COMMAND[words]

    assert run([*words.split(), "--help"]) == 0

    out = capsys.readouterr().out
    assert command.summary in [line.strip() for line in out.splitlines()]
    assert out.rstrip().endswith(f"Example: {command.example}")


@pytest.mark.parametrize("arguments", [[], ["--help"], ["-h"]])
def test_help_names_every_command(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each with a summary that is not cut, on a narrow terminal either. Completion options are not listed."""
    monkeypatch.setenv("COLUMNS", "40")

    assert run(arguments) == 0

    out = capsys.readouterr().out
    assert all(f"  {name} " in out for name in (*(command.name for command in COMMANDS), *GROUPS))
    assert "..." not in out.partition("Commands:")[2]
    assert "completion" not in out


@pytest.mark.parametrize("group", GROUPS)
def test_a_group_without_a_command_lists_its_commands(group: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The exit status is 2."""
    assert run([group]) == 2

    out = capsys.readouterr().out
    assert all(f"  {command.name} " in out for command in GROUPS[group][1])


def test_the_fleet_file_can_be_an_option_or_an_argument(capsys: pytest.CaptureFixture[str]) -> None:
    """Both at the same time are an error."""
    assert run(["check", "--fleet", "examples/minimal.yaml"]) == 0
    assert run(["check", "examples/minimal.yaml", "--fleet", "fleet.yaml"]) == 2

    out, err = capsys.readouterr()
    assert out.startswith("examples/minimal.yaml is valid (")
    assert "FLEET and --fleet exclude each other" in err


@pytest.mark.parametrize("words", EVERY_COMMAND)
def test_every_command_that_reads_a_fleet_has_the_option(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    """But those that have another input."""
    run([*words.split(), "--help"])

    reads_none = {"init", "schema", "audit-graph", "bundle build", "capacity decide", "smoke"}
    reads_none |= {"capacity simulate"}
    assert ("  --fleet " in capsys.readouterr().out) == (words not in reads_none)


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (["ssh", ""], "MACHINE|GROUP"),
        (["node", "apply", "titan-01.cellar", " "], "MACHINE..."),
        (["up", "--stack", ""], "--stack"),
        (["person", "invite", ""], "USER"),
    ],
)
def test_an_empty_word_is_no_name(words: list[str], name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A variable of the shell without a value is refused before anything is read."""
    assert run(words) == 2

    assert capsys.readouterr().err.splitlines()[0] == f"error: {name} is empty"


@pytest.mark.parametrize(
    ("line", "completions"),
    [
        ("bedplate che", ["check"]),
        ("bedplate image r", ["record", "rollback"]),
        ("bedplate plan --w", ["--write"]),
        ("bedplate plan --f", ["--fleet"]),
    ],
)
def test_a_shell_completes_commands_and_options(line: str, completions: list[str]) -> None:
    """By the script that `--show-completion` prints."""
    variables = {"_BEDPLATE_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(line.count(" "))}
    command = [sys.executable, "-m", "bedplate"]

    ended = subprocess.run(command, env={**os.environ, **variables}, capture_output=True, check=True, text=True)

    assert ended.stdout.split() == completions


@pytest.mark.parametrize(
    ("line", "completions"),
    [
        ("bedplate ssh titan-01", ["titan-01.cellar"]),
        pytest.param("bedplate node logs workbench-gp", ["workbench-gpu", *GPU_MACHINES], marks=pytest.mark.nightly),
        ("bedplate node stop workbench-gp", GPU_MACHINES),
        ("bedplate node apply train", []),
        ("bedplate reach i", ["internet"]),
        ("bedplate reach internet us-east-1a", ["us-east-1a", "us-east-1a/edge"]),
        pytest.param("bedplate reach train", [], marks=pytest.mark.nightly),
        ("bedplate node stop workbench-gpu-1.", ["workbench-gpu-1.us-west-2", "workbench-gpu-1.us-east-1"]),
        pytest.param("bedplate kube member replace control-1", ["control-1.us-west-2"], marks=pytest.mark.nightly),
        pytest.param(
            "bedplate node apply --group workbench-", ["workbench-gpu", "workbench-cpu"], marks=pytest.mark.nightly
        ),
        pytest.param("bedplate node apply --site c", ["cellar"], marks=pytest.mark.nightly),
        ("bedplate person invite ", ["ada", "grace"]),
        ("bedplate up --stack us-w", ["us-west-2"]),
        pytest.param("bedplate init --example gpu", ["gpu-box"], marks=pytest.mark.nightly),
        pytest.param("bedplate capacity simulate burst-1600", ["burst-1600"], marks=pytest.mark.nightly),
        ("bedplate capacity explain --fleet nosuch.yaml t", []),
    ],
)
def test_a_shell_completes_values(line: str, completions: list[str], here: Path) -> None:
    """Names of the fleet file, examples and scenarios, without AWS; a file that cannot be read completes nothing."""
    variables = {"_BEDPLATE_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(line.count(" "))}
    command = [sys.executable, "-m", "bedplate"]
    environment = {**os.environ, **variables, "PYTHONPATH": str(ROOT)}

    ended = subprocess.run(
        command, env=environment, capture_output=True, check=True, text=True, cwd=here.parent, timeout=60
    )

    assert (ended.stdout.split(), ended.stderr) == (completions, "")


@pytest.mark.parametrize("words", [["help"], ["help", "node"], ["help", "vpn", "up"]])
def test_help_is_a_command_too(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """It prints what `--help` and `-h` print."""
    outputs = []
    for arguments in (words, [*words[1:], "--help"], [*words[1:], "-h"]):
        assert run(arguments) == 0
        outputs.append(capsys.readouterr().out)

    assert outputs[0] == outputs[1] == outputs[2]


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    """The version is on one line."""
    assert run(["--version"]) == 0

    assert capsys.readouterr().out == f"bedplate {__version__}\n"


def test_warnings_are_counted_by_no_other_command(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`check`, `plan`, `cost`, `preview` and `up` name them; `node list` does not."""
    here.write_text(here.read_text().replace("    expires: permanent ", "    # "))
    assert run(["check"]) == 0
    assert "W330" in capsys.readouterr().out

    assert run(["node", "list"]) == 0

    assert capsys.readouterr().err == ""
