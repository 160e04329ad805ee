"""What people do with their runs: one file, a fake ssh with an agent, and a stand-in for the hub with records."""

import csv
import json
import os
import pty
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import pytest

from tests.testlab.fakes.laptop import FakeHub, Laptop
from tests.testlab.fakes.runs import wait_for
from tests.testlab.run import need_root
from tests.unit.test_bp_run import API, Record, given, laptop_at_work, program

JOBSETS = "/apis/jobset.x-k8s.io/v1alpha2/namespaces/ada/jobsets"

PART = 256 << 10


@pytest.fixture
def record(tmp_path: Path) -> Iterator[Record]:
    """Yield the record of a hub."""
    with FakeHub(tmp_path) as hub:
        yield Record(hub)


@pytest.fixture
def laptop(record: Record, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Laptop:
    """Return ada's laptop with git, in a folder of work."""
    laptop = laptop_at_work(record.hub, tmp_path)
    monkeypatch.chdir(tmp_path / "work")
    return laptop


def started(laptop: Laptop, record: Record, *words: str, **tags: str) -> str:
    """Start a run that goes on, and change its tags; return its name."""
    program(laptop, "")
    assert laptop.bp("run", "-d", "--on", "titan-03", *words, "--", "python", "train.py").returncode == 0
    change(record, **{"state": "running", **tags})
    return str(record.runs[-1]["info"]["run_name"])


def change(record: Record, **tags: str) -> None:
    """Change tags of the newest run."""
    known = {**record.tags, **tags}
    found = [{"key": f"bedplate.{key}", "value": value} for key, value in known.items()]
    record.runs[-1]["data"]["tags"] = found


def store(record: Record, *parts: bytes, rank: int = 0, attempt: int = 0) -> None:
    """Let the hub have parts of the newest run's output."""
    run = record.runs[-1]["info"]["run_id"]
    for number, part in enumerate(parts):
        record.packs[f"7/{run}/artifacts/logs/{attempt}/{rank}/{number:06}"] = part


def agent_words(laptop: Laptop) -> str:
    """Return the words of the last ssh, from those of the agent on."""
    return laptop.logins[-1].rpartition("bedplate-agent ")[2]


def test_logs_are_the_stored_parts(laptop: Laptop, record: Record) -> None:
    """Of rank 0 and the last attempt, or of others; a colleague reads them, too."""
    name = started(laptop, record, state="ended", owner="bob", cause="no environment: no answer")
    store(record, b"a" * PART, b"loss 0.5\n")
    store(record, b"of another\n", rank=3)
    store(record, b"again\n", attempt=1)

    assert laptop.bp("logs", name).stdout == "a" * PART + "loss 0.5\n"
    assert laptop.bp("logs", name, "--rank", "3").stdout == "of another\n"
    assert laptop.bp("logs", "-f", name, "--attempt", "1").stdout == "again\n"
    done = laptop.bp("logs", name, "--rank", "5")
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr.splitlines()[-2:] == [
        "the hub has no output of rank 5 in attempt 0",
        "no environment: no answer",
    ]
    change(record, attempt="1")
    assert laptop.bp("logs", name).stdout == "again\n"


def test_logs_of_no_run_are_wrong_input(laptop: Laptop) -> None:
    """Status 2."""
    assert laptop.bp("logs", "ada-1127-odd-otter").returncode == 2


def test_logs_end_with_their_reader(laptop: Laptop, record: Record) -> None:
    """A closed pipe, as of `head`, is an error in words."""
    name = started(laptop, record, state="ended")
    store(record, *[b"line\n" * 50_000] * 2)

    with laptop.start("logs", name) as process:
        assert process.stdout
        assert process.stderr
        process.stdout.close()
        assert "Broken pipe" in process.stderr.read()

    assert process.returncode == 4


def test_output_of_others_does_not_control_a_terminal(laptop: Laptop, record: Record) -> None:
    """Colours and moves of the cursor stay. What changes the clipboard, or makes a terminal answer, is shown as `?`."""
    name = started(laptop, record, state="ended", owner="bob")
    store(record, b"\x1b[1;31mred\x1b[0m\t50%\r\x1b[K\x1b[A\xc3\xa4\n\x1b]52;c;eA==\x07\x1b[6n\x1bP$q\x05\xc2\x9b5n")

    shown = on_terminal(laptop, "logs", name)

    assert shown == b"\x1b[1;31mred\x1b[0m\t50%\r\x1b[K\x1b[A\xc3\xa4\r\n?]52;c;eA==??[6n?P$q??5n"
    assert "\x1b[6n" in laptop.bp("logs", name).stdout


def on_terminal(laptop: Laptop, *words: str) -> bytes:
    """Return what a command of bp writes to a terminal."""
    terminal, output = pty.openpty()
    with laptop.start(*words, stdout=output) as process:
        os.close(output)
        assert process.wait(30) == 0
    parts = list[bytes]()
    with suppress(OSError):
        while part := os.read(terminal, 1 << 16):
            parts.append(part)
    os.close(terminal)
    return b"".join(parts)


def test_followed_logs_come_from_the_machine(laptop: Laptop, record: Record) -> None:
    """From the byte on at which those of the hub end; status 0, whatever the program returns."""
    name = started(laptop, record)
    store(record, b"a" * PART, b"first\n")
    laptop.ssh_answers("case $* in *bedplate-agent*) echo second; exit 3;; *) echo no; exit 1;; esac")

    done = laptop.bp("logs", "-f", name)

    assert (done.returncode, done.stdout) == (0, "a" * PART + "first\nsecond\n"), done.stderr
    assert agent_words(laptop) == f"follow {name} 0 {PART + 6}"


@pytest.mark.parametrize("owner", ["ada", "bob"])
def test_followed_logs_come_from_the_hub_otherwise(owner: str, laptop: Laptop, record: Record) -> None:
    """For a machine that does not answer, and a colleague's run: each byte once, until the record has its end."""
    name = started(laptop, record, owner=owner)
    store(record, b"first\n")
    laptop.ssh_answers("case $* in *bedplate-agent*) echo second; exit 255;; *) exit 1;; esac")
    process = laptop.start("logs", "-f", name)
    assert process.stdout
    assert process.stdout.readline() == "first\n"
    time.sleep(0.5)

    store(record, b"first\nsecond\nthird\n")
    change(record, state="ended")

    output, errors = process.communicate(timeout=20)
    assert (process.returncode, output) == (0, "second\nthird\n"), errors
    assert any("bedplate-agent follow" in line for line in laptop.logins) is (owner == "ada")


@pytest.mark.parametrize(("words", "expected"), [([], "stop {}"), (["--now"], "stop {} --now")])
def test_a_run_is_stopped_by_its_agent(words: list[str], expected: str, laptop: Laptop, record: Record) -> None:
    """The machine writes the end."""
    name = started(laptop, record)

    done = laptop.bp("stop", name, *words)

    assert (done.returncode, f"{name} is being stopped" in done.stderr) == (0, True), done.stderr
    assert agent_words(laptop) == expected.format(name)
    assert record.tags["state"] == "running"


@pytest.mark.parametrize(
    ("tags", "status", "end"),
    [
        ({"owner": "bob"}, 0, (2, "is a run of bob")),
        ({"state": "ended", "cause": "rank 2 ended"}, 0, (0, "has ended: rank 2 ended")),
        ({}, 255, (4, "titan-03.cellar does not answer")),
        ({}, 204, (4, "does not stop")),
        ({"id": "x; rm -r /"}, 0, (2, "has no id")),
        ({"machine": "-oProxyCommand=x"}, 0, (2, "has no machine")),
        ({"machine": "gone.cellar"}, 0, (2, "people log in to no machine gone.cellar")),
    ],
)
def test_what_cannot_be_stopped_is_said(
    tags: Mapping[str, str], status: int, end: tuple[int, str], laptop: Laptop, record: Record
) -> None:
    """A run of another person, one that has ended, and one whose machine does not do it. Tags reach no shell."""
    name = started(laptop, record, **tags)
    laptop.ssh_answers(f"exit {status}")

    done = laptop.bp("stop", name)

    assert (done.returncode, end[1] in done.stderr) == (end[0], True), done.stderr


def two_runs(laptop: Laptop, record: Record) -> tuple[str, str]:
    """Return two runs, between which a line and a parameter were changed, and a file is new."""
    first = started(laptop, record, "--param", "lr=0.1")
    Path("train.py").write_text("print('better')\n\tx\x1b[2J\n")
    Path(".gitattributes").write_text("* diff=evil\n")
    return first, started(laptop, record, "--param", "lr=0.2")


def test_a_difference_has_code_and_parameters(laptop: Laptop, record: Record) -> None:
    """Facts that are equal are not in it. Characters that control a terminal are shown as `?`."""
    first, second = two_runs(laptop, record)

    done = laptop.bp("diff", first, second)

    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("- parameter lr: 0.1\n+ parameter lr: 0.2\ndiff --git ")
    assert "\n-print('loss')\n+print('better')\n+\tx?[2J\n" in done.stdout
    assert "command" not in done.stdout
    same = laptop.bp("diff", first, first)
    assert (same.returncode, same.stdout) == (0, "")


def test_runs_are_compared_side_by_side(laptop: Laptop, record: Record) -> None:
    """Facts and parameters that differ, and all last metrics; a run that lacks a value has `-`, in JSON null."""
    names = [*two_runs(laptop, record), started(laptop, record, "--param", "lr=0.2", machine="gpu-1.us-west-2")]
    for run, loss in zip(record.runs, (0.5, 0.25), strict=False):
        run["data"]["metrics"] = [{"key": "loss", "value": loss}]

    done = laptop.bp("compare", *names)

    assert done.returncode == 0, done.stderr
    assert [line.split() for line in done.stdout.splitlines()] == [
        ["run", *names],
        ["machine", "titan-03.cellar", "titan-03.cellar", "gpu-1.us-west-2"],
        ["parameter", "lr", "0.1", "0.2", "0.2"],
        ["metric", "loss", "0.5", "0.25", "-"],
    ]
    document = json.loads(laptop.bp("compare", *names[:2], "--json").stdout)
    assert document == {"run": names[:2], "parameter lr": ["0.1", "0.2"], "metric loss": [0.5, 0.25]}


def test_a_comparison_is_written_as_csv(laptop: Laptop, record: Record) -> None:
    """A line for each run, which programs for tables read; a missing value is empty, and no value ends its line."""
    names = two_runs(laptop, record)
    record.runs[0]["data"]["metrics"] = [{"key": 'a "loss", x', "value": 0.5}]
    record.runs[1]["data"]["tags"].append({"key": "bedplate.command", "value": "echo 'a\nb', c"})

    done = laptop.bp("compare", *names, "--csv")

    assert done.returncode == 0, done.stderr
    first, second = csv.DictReader(done.stdout.splitlines())
    assert (first["run"], first["parameter lr"], first['metric a "loss", x']) == (names[0], "0.1", "0.5")
    assert (second["run"], second['metric a "loss", x'], second["command"]) == (names[1], "", "echo 'a?b', c")
    assert laptop.bp("compare", *names, "--csv", "--json").returncode == 2


def test_own_runs_are_archived_together(laptop: Laptop, record: Record) -> None:
    """All of them, or none if one is of a colleague or unknown; a tag hides them, and nothing else changes."""
    first, second = two_runs(laptop, record)
    done = laptop.bp("runs", "archive", first, second)
    assert (done.returncode, "2 archived" in done.stderr) == (0, True), done.stderr
    assert [run["data"]["tags"].pop() for run in record.runs] == [{"key": "bedplate.archived", "value": "true"}] * 2
    change(record, owner="bob")

    for name in (second, "ada-1127-odd-otter"):
        assert laptop.bp("runs", "archive", first, name).returncode == 2
        assert "archived" not in json.dumps(record.runs)


def leave(record: Record, **files: bytes) -> None:
    """Let the newest run have left files, `model__pt` at `model/pt`."""
    run = record.runs[-1]["info"]["run_id"]
    record.packs |= {f"7/{run}/artifacts/output/{name.replace('__', '/')}": data for name, data in files.items()}


def test_files_of_a_run_are_listed_and_copied(laptop: Laptop, record: Record, tmp_path: Path) -> None:
    """With folders, to a new folder; output and code are not among them."""
    name, folder = started(laptop, record, state="ended"), tmp_path / "left"
    store(record, b"loss\n")
    leave(record, model__best__pt=b"x" * 1500, notes=b"a b")

    listed, document = laptop.bp("files", name), laptop.bp("files", name, "--json")
    done = laptop.bp("files", name, str(folder))

    refused = laptop.bp("files", name, str(tmp_path / ("x" * 250)))
    assert (refused.returncode, "Errno" in refused.stderr, "name too long" in refused.stderr) == (4, False, True)
    assert [line.split(maxsplit=1) for line in listed.stdout.splitlines()] == [
        ["1,500", "model/best/pt"],
        ["3", "notes"],
        ["1,503", "2 files"],
    ]
    assert json.loads(document.stdout) == {"model/best/pt": 1500, "notes": 3}
    assert (done.returncode, "2 files with 0.00 MB" in done.stderr) == (0, True), done.stderr
    assert {path.name: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == {
        "pt": b"x" * 1500,
        "notes": b"a b",
    }
    assert [path.name for path in tmp_path.glob("left*")] == ["left"]
    assert laptop.bp("files", name, str(folder)).returncode == 2


def test_a_copy_that_was_cut_goes_on(laptop: Laptop, record: Record, tmp_path: Path) -> None:
    """The folder has no name before all files are there, and what is there is not copied again."""
    name = started(laptop, record, state="ended")
    leave(record, a=b"one", b=b"two")
    (lost,) = [path for path in record.packs if path.endswith("output/b")]
    content, listing = record.packs[lost], record[f"{API}artifacts/list"]
    record.hub.answer(f"{API}artifacts/list", {"files": [{"path": f"output/{name}", "file_size": 3} for name in "ab"]})
    del record.packs[lost]

    failed = laptop.bp("files", name, str(tmp_path / "left"))
    (part,) = tmp_path.glob("left*")
    kept = [path.name for path in part.iterdir()]
    record.packs[lost], record[f"{API}artifacts/list"] = content, listing
    again = laptop.bp("files", name, str(tmp_path / "left"))

    assert (failed.returncode, part.name, kept) == (4, f"left.{name}.part", ["a"]), failed.stderr
    assert again.returncode == 0, again.stderr
    assert {path.name: path.read_text() for path in (tmp_path / "left").iterdir()} == {"a": "one", "b": "two"}
    assert len([line for line, _, _ in record.hub.requests if line.endswith("output/a")]) == 1


def test_no_path_of_the_hub_leads_out_of_the_folder(laptop: Laptop, record: Record, tmp_path: Path) -> None:
    """A file is in the folder that was listed, whatever the hub says; a name that is none is refused."""
    name = started(laptop, record, state="ended")
    leave(record, passwd=b"evil", x=b"evil")
    before = {*tmp_path.iterdir()}
    for number, path in enumerate(
        ["output/..", "output/", "", "output/a\x00b", "output/.", "/etc/passwd", "../x", "\\.."]
    ):
        record.hub.answer(f"{API}artifacts/list", {"files": [{"path": path, "file_size": 4}]})
        left = f"left-{number}"

        done = laptop.bp("files", name, str(tmp_path / left))

        assert done.returncode == (0 if path in {"/etc/passwd", "../x"} else 4), (path, done.stderr)
        after = {*tmp_path.iterdir()}
        assert {file.name for file in after - before} <= {left, f"{left}.{name}.part"}, path
        before = after


def test_a_hub_whose_folders_never_end_is_given_up(laptop: Laptop, record: Record) -> None:
    """A path of the hub has at most 900 bytes."""
    name = started(laptop, record, state="ended")
    record.hub.answer(f"{API}artifacts/list", {"files": [{"path": "output/" + "a" * 200, "is_dir": True}]})

    assert laptop.bp("files", name).returncode == 4


def test_no_folder_of_another_account_is_filled(laptop: Laptop, record: Record, tmp_path: Path) -> None:
    """In a folder that all may write to, others can make a link of the name that a copy has before its end."""
    name = started(laptop, record, state="ended")
    leave(record, a=b"one")
    (tmp_path / "home").mkdir()
    link = tmp_path / f"left.{name}.part"
    link.symlink_to(tmp_path / "home")
    need_root()
    os.lchown(link, 20009, 20009)

    done = laptop.bp("files", name, str(tmp_path / "left"))

    assert (done.returncode, "belongs to another account" in done.stderr) == (2, True), done.stderr
    assert not [*(tmp_path / "home").iterdir()]


def test_a_difference_starts_no_program_of_the_person(laptop: Laptop, record: Record, tmp_path: Path) -> None:
    """Their configuration of git names some, such as a pager, an external diff and a textconv."""
    first, second = two_runs(laptop, record)
    mark, home = tmp_path / "mark", tmp_path / "laptop"
    evil = f"touch {mark}"
    text = f'[core]\npager = "{evil}"\n[diff]\nexternal = "{evil}"\n'
    text += f'[diff "evil"]\ncommand = "{evil}"\ntextconv = "{evil}"\n'
    (home / ".gitconfig").write_text(text)

    assert "better" in laptop.bp("diff", first, second).stdout
    assert not mark.exists()


def test_code_is_written_to_a_new_folder(laptop: Laptop, record: Record, tmp_path: Path) -> None:
    """A folder that exists stays as it is, and so does everything if the hub has lost the code."""
    _, second = two_runs(laptop, record)
    folder = tmp_path / "code"

    assert laptop.bp("code", second, str(folder)).returncode == 0
    assert sorted(path.name for path in folder.iterdir()) == [".gitattributes", ".gitignore", "train.py"]
    done = laptop.bp("code", second, str(folder))
    assert (done.returncode, "name a new folder" in done.stderr, (folder / "train.py").exists()) == (2, True, True)
    record.packs.clear()
    done = laptop.bp("code", second, str(tmp_path / "other"))
    assert (done.returncode, "has no code of" in done.stderr) == (4, True), done.stderr
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize("command", ["code", "diff"])
def test_no_tag_leads_to_another_file(command: str, laptop: Laptop, record: Record, tmp_path: Path) -> None:
    """Colleagues can change tags."""
    name = started(laptop, record, tree="../../../../etc/passwd")

    done = laptop.bp(command, name, str(tmp_path / "x") if command == "code" else name)

    assert (done.returncode, "has no tree" in done.stderr) == (2, True)


def test_a_shell_starts_beside_the_program(laptop: Laptop, record: Record) -> None:
    """In the folder of its code; the exit code is that of a command. Words reach it as they are."""
    name = started(laptop, record)
    laptop.ssh_answers("exit 7")

    assert laptop.bp("attach", name, "--", "echo", "a b").returncode == 7
    assert f"/scratch/ada/runs/{name}/work" in laptop.logins[-1]
    assert laptop.logins[-1].endswith("exec echo 'a b'")
    change(record, owner="bob")
    assert laptop.bp("attach", name).returncode == 2


def test_the_stacks_of_a_run_are_those_of_its_python_processes(laptop: Laptop, record: Record, tmp_path: Path) -> None:
    """py-spy is asked on the machine; one that lacks it says how to get it, and so does a run without Python."""
    name, tools = started(laptop, record), tmp_path / "tools"
    environment = {"BEDPLATE_RUN": record.runs[-1]["info"]["run_id"], "PATH": "/usr/bin:/bin"}
    laptop.ssh_answers(f'PATH={tools}:$PATH; cd() {{ :; }}; for last; do :; done; eval "$last"')
    lacks = laptop.bp("attach", name, "--stack")
    tools.mkdir()
    (tools / "py-spy").write_text("#!/bin/sh\necho $*\n[ ! -e $0.refused ]\n")
    (tools / "py-spy").chmod(0o755)

    without = laptop.bp("attach", name, "--stack")
    with subprocess.Popen(["sleep", "60"], env=environment) as other:
        with subprocess.Popen([sys.executable, "-c", "input()"], env=environment, stdin=subprocess.PIPE) as program:
            done = laptop.bp("attach", name, "--stack")
            (tools / "py-spy.refused").touch()
            refused = laptop.bp("attach", name, "--stack")
            program.kill()
        other.kill()

    assert (lacks.returncode, "install it by pipx" in lacks.stderr) == (4, True), lacks.stderr
    assert (without.returncode, "shows no Python process of the run" in without.stderr) == (4, True)
    assert (done.returncode, done.stdout) == (0, f"dump --pid {program.pid}\n"), done.stderr
    assert refused.returncode == 4


def test_a_run_is_repeated_by_its_record(laptop: Laptop, record: Record, monkeypatch: pytest.MonkeyPatch) -> None:
    """Same code, command, place, limits and parameters, from any folder; nothing is sent again."""
    words = (
        "--gpus",
        "2",
        "--memory",
        "8",
        "--for",
        "90m",
        "--param",
        "lr=0.1",
        "--param",
        "note=a b",
        "--env",
        "KEY=x",
    )
    name = started(laptop, record, *words)
    first, tags = given(laptop), record.tags
    record.runs[-1]["data"]["params"].append({"key": "of the program", "value": "1"})
    monkeypatch.chdir("/")
    program(laptop, "echo loss; exit 3")

    refused = laptop.bp("again", name)
    done = laptop.bp("again", name, "--env", "KEY=y")

    assert (refused.returncode, "no values of KEY" in refused.stderr) == (242, True), refused.stderr
    assert (done.returncode, done.stdout) == (3, "loss\n"), done.stderr
    assert f"repeats {name}: python train.py" in done.stderr
    changed = {"id", "run", "token"}
    second = given(laptop)
    assert {key for key in first if first[key] != second[key]} <= {*changed, "environment"}
    assert second["environment"] == {"KEY": "y"}
    assert second["id"] != name
    kept = {key: value for key, value in tags.items() if key not in {"id", "state"}}
    assert record.tags.items() >= kept.items()
    assert len([line for line, _, _ in record.hub.requests if line.startswith("PUT")]) == 1


LISTED = "artifacts/environment.txt"


def test_a_folder_with_requirements_has_an_environment(laptop: Laptop, record: Record) -> None:
    """Said is from which file; a repeat has the list of the first run, once the hub has it. Each may have none."""
    Path("requirements.txt").write_text("numpy\n")
    dry = laptop.bp("run", "--dry-run", "--", "true")
    name = started(laptop, record)
    sources = [given(laptop)["environment_file"]]
    run = record.runs[-1]["info"]["run_id"]
    # A run that has not built it has no list.
    for words in (
        ("again", name),
        ("again", name),
        ("run", "--environment", name),
        ("again", name, "--environment", "none"),
    ):
        assert laptop.bp(*words, "-d", *(["--", "true"] if words[0] == "run" else [])).returncode == 0
        sources.append(given(laptop)["environment_file"])
        record.packs[f"7/{run}/{LISTED}"] = b"numpy==2.1\n"

    assert "environment of requirements.txt: " in dry.stderr
    listed = f"7/{run}/{LISTED}"
    assert sources == ["requirements.txt", "requirements.txt", listed, listed, ""]
    assert "environment" not in record.tags
    assert {"key": "bedplate.environment", "value": "requirements.txt"} in record.runs[0]["data"]["tags"]


@pytest.mark.parametrize(
    ("text", "words", "expected"),
    [
        ("-e .\n", (), "requirements.txt installs from the folder of the code: -e ."),
        ("-r more.txt\n", (), "the code has no more.txt"),
        ("", ("--environment", "ada-1-lost-otter"), "no run is named ada-1-lost-otter"),
    ],
)
def test_an_environment_that_cannot_be_is_refused(
    text: str, words: tuple[str, ...], expected: str, laptop: Laptop, record: Record
) -> None:
    """Before anything is sent; without it the run starts."""
    Path("requirements.txt").write_text(text)
    program(laptop, "")

    done = laptop.bp("run", "-d", *words, "--", "true")

    assert done.returncode == 242
    assert expected in done.stderr
    assert not record.runs
    assert laptop.bp("run", "-d", "--environment", "none", "--", "true").returncode == 0


def test_the_packages_of_a_run_with_another_index_need_that_index(laptop: Laptop, record: Record) -> None:
    """The list of packages has no index, and the record no values; other variables say nothing of packages."""
    name = started(laptop, record, "--env", "UV_INDEX=https://index.lab", "--env", "SEED=7")
    record.packs[f"7/{record.runs[-1]['info']['run_id']}/{LISTED}"] = b"numpy==2.1\n"

    refused = laptop.bp("run", "-d", "--environment", name, "--", "true")
    done = laptop.bp("run", "-d", "--environment", name, "--env", "UV_INDEX=https://index.lab", "--", "true")

    assert (refused.returncode, "the record has no values of UV_INDEX\n" in refused.stderr) == (242, True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("file", ["requirements.txt", "more/base.txt"])
def test_an_environment_of_a_file_that_stays_is_refused(file: str, laptop: Laptop, record: Record) -> None:
    """The machine would lack what git ignores; `--include` sends it."""
    Path("more").mkdir()
    Path("more/base.txt").write_text("numpy\n")
    Path("requirements.txt").write_text("-r ./more/base.txt\n")
    Path(".gitignore").write_text(f"{file.partition('/')[0]}\n")
    program(laptop, "")

    done = laptop.bp("run", "-d", "--", "true")

    assert done.returncode == 242
    assert f"no environment: git ignores {file}, so it stays behind" in done.stderr
    assert f"--include {file}" in done.stderr
    assert not record.runs
    assert laptop.bp("run", "-d", "--include", file, "--", "true").returncode == 0
    assert given(laptop)["environment_file"] == "requirements.txt"


@pytest.mark.parametrize("value", ["../x", "7/x/artifacts/environment.txt", "setup.py"])
def test_a_record_with_another_environment_is_not_repeated(value: str, laptop: Laptop, record: Record) -> None:
    """Colleagues can change tags."""
    name = started(laptop, record, environment=value)

    done = laptop.bp("again", name, "-d")

    assert done.returncode == 242
    assert "has no environment" in done.stderr


def array(laptop: Laptop, record: Record, *words: str) -> str:
    """Start an array of four elements on a machine; return its name."""
    program(laptop, "")
    done = laptop.bp("run", "-d", "--on", "titan-03", "--array", "1-3,7%2", *words, "--", "python", "train.py")
    assert done.returncode == 0, done.stderr
    assert "note" in done.stderr or "an array of elements 1-3,7, 2 at a time" in done.stderr
    return str(record.runs[-1]["info"]["run_name"])


def test_an_array_is_one_line(laptop: Laptop, record: Record) -> None:
    """It says how many have ended; `logs --rank` has the output of an element."""
    name = array(laptop, record)
    assert {key: given(laptop)[key] for key in ("elements", "at_once")} == {"elements": "1-3,7", "at_once": 2}
    assert {key: record.tags[key] for key in ("array", "elements", "at_once")} == {
        "array": "1-3,7",
        "elements": "4",
        "at_once": "2",
    }
    change(record, state="running", **{"exit.0.1": "0", "exit.0.7": "3", "cause.0.7": "of the seventh"})
    store(record, b"seven\n", rank=7)

    assert "2 of 4 ended, 1 failed" in laptop.bp("show", name).stdout
    assert "of the seventh" not in laptop.bp("show", name).stdout
    assert laptop.bp("logs", name, "--rank", "7").stdout == "seven\n"
    assert "no output of element 3" in laptop.bp("logs", name, "--rank", "3").stderr


def test_failed_elements_are_repeated(laptop: Laptop, record: Record) -> None:
    """With those that never ran, as many at a time; without --failed all of them."""
    name = array(laptop, record)
    change(record, state="ended", **{"exit.0.1": "0", "exit.0.3": "0", "exit.0.7": "3"})

    assert laptop.bp("again", name, "--failed", "-d").returncode == 0
    assert (given(laptop)["elements"], given(laptop)["at_once"]) == ("2,7", 2)
    assert laptop.bp("again", name, "-d").returncode == 0
    assert given(laptop)["elements"] == "1-3,7"


def test_only_arrays_have_failed_elements(laptop: Laptop, record: Record) -> None:
    """Each refusal says what to change."""
    name = started(laptop, record, state="ended")
    assert "is no array" in laptop.bp("again", name, "--failed").stderr
    name = array(laptop, record)
    change(record, state="ended", **{f"exit.0.{element}": "0" for element in (1, 2, 3, 7)})
    assert "have succeeded" in laptop.bp("again", name, "--failed").stderr


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--array", "3-1"], "--array: 3-1 has no elements: 3 is above 1"),
        (["--array", "0-2000"], "at most 2,000 elements"),
        (["--array", "1-3", "--nodes", "2"], "an element of an array has one machine"),
        (["--array", "a"], "the value is not of the form"),
        (["--array", "1-3%0"], "the value is not of the form"),
    ],
)
def test_a_wrong_array_is_refused(words: list[str], text: str, laptop: Laptop, record: Record) -> None:
    """Before there is a record."""
    done = laptop.bp("run", *words, "--", "true")

    assert (done.returncode, text in done.stderr) == (242, True), done.stderr
    assert not record.runs


@pytest.mark.parametrize(("status", "code"), [("FINISHED", 0), ("FAILED", 1), ("KILLED", 201)])
def test_a_followed_array_says_how_it_goes_on(status: str, code: int, laptop: Laptop, record: Record) -> None:
    """Until its end; the exit code is 0 only if all have succeeded."""
    program(laptop, "")
    process = laptop.start("run", "--on", "titan-03", "--array", "1-2", "--", "python", "train.py")
    wait_for(lambda: "array" in record.tags if record.runs else False)
    wait_for(lambda: any("runs/get" in line for line, _, _ in record.hub.requests))

    record.runs[-1]["info"]["status"] = status
    change(record, state="ended", code=str(code), cause="because", **{"exit.0.1": "0"})
    _, errors = process.communicate(timeout=60)

    assert process.returncode == code, errors
    assert "1 of 2 ended, 0 failed\nbecause\n" in errors
    assert "--follow" not in agent_words(laptop)


def test_the_run_of_a_colleague_is_repeated_by_copies_of_its_packs(laptop: Laptop, record: Record) -> None:
    """The token of a run reads packs of its own person only."""
    name = started(laptop, record, owner="bob")
    (path,) = [path for path in record.packs if path.startswith("packs/")]
    record.packs[path.replace("/ada/", "/bob/")] = content = record.packs.pop(path)

    done = laptop.bp("again", name, "-d")

    assert done.returncode == 0, done.stderr
    assert record.packs[path] == content
    assert "with the code of bob\n" in done.stderr
    assert given(laptop)["packs"] == [path]
    assert record.tags["owner"] == "ada"


@pytest.mark.parametrize(
    ("tags", "sentence"),
    [({"base": ""}, "has no base"), ({"command": "sh 'x"}, "has no command"), ({"gpus": "-1"}, "no gpus")],
)
def test_a_record_without_what_is_needed_is_not_repeated(
    tags: Mapping[str, str], sentence: str, laptop: Laptop, record: Record
) -> None:
    """Such as one that a program has made: status 242."""
    name = started(laptop, record, **tags)

    done = laptop.bp("again", name)

    assert (done.returncode, sentence in done.stderr, len(record.runs)) == (242, True, 1), done.stderr


@pytest.fixture
def cluster(laptop: Laptop, tmp_path: Path) -> Iterator[FakeHub]:
    """Yield a stand-in for the API of the cluster, which has no pod and no JobSet."""
    (tmp_path / "cluster").mkdir()
    with FakeHub(tmp_path / "cluster", "localhost") as api:
        laptop.set(cluster=api.cluster_of("ada"))
        api.answer("/api/v1/namespaces/ada/pods", {"items": []})
        yield api


@pytest.mark.parametrize(("words", "state"), [([], {}), ([], {"running": {}}), (["--now"], {"running": {}})])
def test_a_run_in_the_cluster_is_stopped_with_its_jobset(
    words: list[str], state: Mapping[str, object], cluster: FakeHub, laptop: Laptop, record: Record
) -> None:
    """The agent of a running container writes the end, if it has time; otherwise bp does."""
    name = started(laptop, record, image="r@sha256:1")
    status = {"phase": "Running", "containerStatuses": [{"name": "run", "state": state}]}
    pod = {"metadata": {"name": "pod-x", "creationTimestamp": "1"}, "status": status}
    cluster.answer("/api/v1/namespaces/ada/pods", {"items": [pod]})
    for path in (f"{JOBSETS}/{name}", "/api/v1/namespaces/ada/pods/pod-x"):
        cluster.answer(path, {})

    done = laptop.bp("stop", name, *words)

    assert done.returncode == 0, done.stderr
    deleted = [line.split("?")[0] for line, _, _ in cluster.requests if line.startswith("DELETE")]
    assert deleted[0] == f"DELETE {JOBSETS}/{name}"
    assert len(deleted) == 1 + len(words)
    assert record.runs[-1]["info"]["status"] == ("RUNNING" if state and not words else "KILLED")


def _pod(cluster: FakeHub, **status: object) -> None:
    """Let the cluster have the pod of a run."""
    pod = {"metadata": {"name": "pod-x", "creationTimestamp": "1"}, "status": status}
    cluster.answer("/api/v1/namespaces/ada/pods", {"items": [pod]})


def _container(**state: object) -> list[Mapping[str, object]]:
    """Return the states of a run's containers."""
    return [{"name": "run", "state": state}]


@pytest.mark.parametrize(
    ("status", "cause"),
    [
        (
            {"containerStatuses": _container(terminated={"exitCode": 137, "reason": "OOMKilled"})},
            "its container ended with exit code 137: OOMKilled",
        ),
        pytest.param(
            {"reason": "Evicted", "message": "disk pressure"},
            "the pod has ended: Evicted: disk pressure",
            marks=pytest.mark.nightly,
        ),
    ],
)
def test_who_follows_a_pod_that_was_killed_writes_its_end(
    status: Mapping[str, object], cause: str, cluster: FakeHub, laptop: Laptop, record: Record
) -> None:
    """Its agent had no time for that. An end that is there stays."""
    for words, expected in (([], cause), (["state=ended"], "of the agent")):
        name = started(laptop, record, image="r@sha256:1")
        _pod(cluster, phase="Running", containerStatuses=_container(running={}))
        process = laptop.start("logs", "-f", name)
        wait_for(lambda: any("/log?" in line for line, _, _ in cluster.requests))
        if words:
            change(record, state="ended", cause="of the agent")
        _pod(cluster, phase="Failed", **status)

        _, errors = process.communicate(timeout=30)

        assert process.returncode == 0, errors
        assert (record.tags["state"], record.tags["cause"]) == ("ended", expected)
        cluster.requests.clear()


def test_what_kubelet_says_of_a_removed_container_is_no_output(
    cluster: FakeHub, laptop: Laptop, record: Record
) -> None:
    """It answers a request for a log by such a line."""
    name = started(laptop, record, image="r@sha256:1")
    _pod(cluster, phase="Running", containerStatuses=_container(running={}))
    log = b"2026-11-27T10:00:00.000000000Z loss\nunable to retrieve container logs for containerd://2de6"
    cluster.answers["/api/v1/namespaces/ada/pods/pod-x/log"] = (200, {}, log)
    process = laptop.start("logs", "-f", name)
    wait_for(lambda: any("/log?" in line for line, _, _ in cluster.requests))
    _pod(cluster, phase="Failed", containerStatuses=_container(terminated={"exitCode": 3, "reason": "Error"}))

    output, errors = process.communicate(timeout=30)

    assert output == "loss\n", errors


def test_a_closed_output_ends_the_logs_of_a_pod(cluster: FakeHub, laptop: Laptop, record: Record) -> None:
    """Such as that of `head`: status 4, at once."""
    name = started(laptop, record, image="r@sha256:1")
    _pod(cluster, phase="Running", containerStatuses=_container(running={}))
    line = b"2026-11-27T10:00:00.000000000Z loss\n"
    cluster.answers["/api/v1/namespaces/ada/pods/pod-x/log"] = (200, {}, line)
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as target:
        _, errors = laptop.start("logs", "-f", name, stdout=target).communicate(timeout=30)

    assert "Broken pipe" in errors


def test_what_no_pod_can_do_is_said(cluster: FakeHub, laptop: Laptop, record: Record) -> None:
    """A shell needs a running container; the output of a run whose JobSet is gone comes from the hub."""
    name = started(laptop, record, image="r@sha256:1")
    store(record, b"stored\n")

    attached = laptop.bp("attach", name)
    process = laptop.start("logs", "-f", name)
    assert process.stdout
    assert process.stdout.readline() == "stored\n"
    change(record, state="ended")
    output, errors = process.communicate(timeout=30)

    assert (attached.returncode, "has no running container" in attached.stderr) == (2, True), attached.stderr
    assert (process.returncode, output) == (0, ""), errors
    assert cluster.requests


@pytest.mark.parametrize(
    ("state", "seen", "step"),
    [
        ("running", 60, "bp logs -f {0}`, `bp stop {0}"),
        ("running", 300, "bp logs -f {0}`, `bp stop {0}"),
        ("queued", None, "bp logs -f {0}`, `bp stop {0}"),
        ("ended", 300, "bp logs {0}`, `bp again {0}"),
    ],
)
def test_show_names_the_next_step(state: str, seen: int | None, step: str, laptop: Laptop, record: Record) -> None:
    """A run of which nobody has heard for three minutes is silent."""
    tags = {} if seen is None else {"seen": str(int((time.time() - seen) * 1000))}
    name = started(laptop, record, state=state, **tags)

    text = laptop.bp("show", name).stdout

    assert step.format(name) in text
    assert ("silent since" in text) is (state == "running" and seen == 300)
    change(record, session="ssh")
    assert "bp again" not in laptop.bp("show", name).stdout
