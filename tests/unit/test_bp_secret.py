"""`bp secret` and `--secret`: the agent of each machine by a fake ssh, and a stand-in for the API of the cluster."""

import json
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.testlab.fakes.laptop import Answer, FakeHub, Laptop
from tests.unit.test_agent_start import Machine
from tests.unit.test_bp_run import FLEET, MACHINES, SSH, Record, given, laptop_at_work, program

VALUE = "hf_s3cret/+="
STORES = ("small.cellar", "titan-03.cellar", "gpu-1.us-west-2")
_FOLDER = ".config/bedplate/secrets"
_SECRETS = "/api/v1/namespaces/a-b/secrets/bedplate-secrets"


class Cluster(FakeHub):
    """The Secret of a person, as the API server keeps what each manager applies."""

    def __init__(self, folder: Path) -> None:
        self.data: dict[str, str] = {}
        self.times: dict[str, str] = {}
        super().__init__(folder, "localhost")

    def respond(self, method: str, path: str, body: bytes) -> Answer:
        """Answer to GET, and to a server-side apply."""
        if path != _SECRETS or (method == "GET" and not self.times):
            return 404, {}, b'{"message": "not found"}'
        if method == "PATCH":
            line, headers, _ = self.requests[-1]
            assert headers["Content-Type"] == "application/apply-patch+yaml"
            (name,) = parse_qs(urlsplit(line).query)["fieldManager"]
            self.data = {key: value for key, value in self.data.items() if key != name} | json.loads(body)["data"]
            self.times[name] = "2026-11-27T21:10:00Z"
        managers = [{"manager": name, "time": time} for name, time in self.times.items()]
        return 200, {}, json.dumps({"metadata": {"managedFields": managers}, "data": self.data}).encode()


@pytest.fixture
def record(tmp_path: Path) -> Iterator[Record]:
    """Yield the record of a hub."""
    with FakeHub(tmp_path) as hub:
        yield Record(hub)


@pytest.fixture
def laptop(record: Record, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Laptop:
    """Return the laptop of a person whose homes are folders by the names of machines."""
    laptop = laptop_at_work(record.hub, tmp_path)
    record.hub.answer("/fleet.json", {**FLEET, "machines": {name: MACHINES[name] for name in STORES}})
    agent = Machine(tmp_path)
    for name in STORES:
        (tmp_path / "homes" / name).mkdir(parents=True)
    words = shlex.join((*agent.command, "secrets"))
    environment = shlex.join(f"{name}={value}" for name, value in agent.environment.items())
    homes = "".join(
        f"*'{name} bedplate-agent secrets') echo Hello; exec env HOME={tmp_path}/homes/{name} {environment} {words};;\n"
        for name in STORES
    )
    laptop.ssh_answers(SSH.replace("*bedplate-agent*)", f"{homes}*bedplate-agent*)"))
    monkeypatch.chdir(tmp_path / "work")
    return laptop


@pytest.fixture
def stored(laptop: Laptop, tmp_path: Path) -> Laptop:
    """Return the laptop of a person who has secrets on one of three machines."""
    folder = tmp_path / "homes/small.cellar" / _FOLDER
    folder.mkdir(parents=True)
    for name, value in {"HF_TOKEN": f"{VALUE}\n", "wandb-key": "second"}.items():
        (folder / name).write_text(value)
    return laptop


@pytest.fixture
def cluster(laptop: Laptop, tmp_path: Path) -> Iterator[Cluster]:
    """Yield the API of the cluster, which knows the person a_b by the namespace a-b."""
    (tmp_path / "cluster").mkdir()
    with Cluster(tmp_path / "cluster") as api:
        laptop.set(person="a_b", cluster=api.cluster_of("a-b"))
        yield api


def store(laptop: Laptop, name: str, value: str = f"{VALUE}\n") -> str:
    """Set a secret; return what bp says."""
    done = laptop.bp("secret", "set", name, text=value)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_secret_is_set_listed_and_removed_everywhere(laptop: Laptop, cluster: Cluster, tmp_path: Path) -> None:
    """On machines with runs by a file that only the person reads, and in their namespace; no output has the value."""
    said = store(laptop, "HF_TOKEN")
    listed = laptop.bp("secret", "list")

    files = [tmp_path / "homes" / name / _FOLDER / "HF_TOKEN" for name in STORES]
    assert [file.read_text() for file in files] == [f"{VALUE}\n"] * 3
    assert {file.stat().st_mode & 0o777 for file in files} == {0o600}
    assert {file.parent.stat().st_mode & 0o777 for file in files} == {0o700}
    assert [*cluster.data] == ["HF_TOKEN"]
    assert said.splitlines() == [line for name in ("cluster", *STORES) for line in (name, "  HF_TOKEN is set")]
    assert listed.stdout.startswith(
        "cluster\n  HF_TOKEN  since 2026-11-27T21:10:00Z\nsmall.cellar\n  HF_TOKEN  since 20"
    )
    assert VALUE not in said + listed.stdout + listed.stderr + (laptop.programs / "ssh.log").read_text()
    removed = laptop.bp("secret", "remove", "HF_TOKEN")
    assert removed.stdout == said.replace("set", "removed")
    assert (cluster.data, [file.exists() for file in files]) == ({}, [False] * 3)


def test_a_place_that_does_not_answer_is_named(laptop: Laptop, record: Record, tmp_path: Path) -> None:
    """So is a region whose homes no machine has now. Status 6; the others have the secret."""
    script = (laptop.programs / "answer").read_text()
    laptop.ssh_answers(script.replace("case", 'case "$*" in *titan-03*) echo no route >&2; exit 255;; esac\ncase', 1))
    machines = {name: MACHINES[name] for name in STORES[:2]}
    record.hub.answer("/fleet.json", {**FLEET, "machines": machines})

    done = laptop.bp("secret", "set", "KEY", text=VALUE)

    assert done.returncode == 6
    expected = "small.cellar\n  KEY is set\ntitan-03.cellar: no route\nus-west-2: no machine runs there now\n"
    assert done.stdout == expected
    removed = laptop.bp("secret", "remove", "KEI")
    assert (removed.returncode, removed.stdout) == (6, expected.replace("KEY is set", "KEI is not there"))


@pytest.mark.parametrize(
    ("words", "text", "sentence"),
    [
        (["set", "A.B"], VALUE, "one name of letters, digits"),
        (["set", "KEY=hidden"], "", "one name of letters, digits"),
        (["set", "KEY", "hidden"], "", "or reads it from stdin"),
        (["set", "../KEY"], VALUE, "one name of letters, digits"),
        (["set", "KEY"], "\n", "the value is empty"),
        (["set", "KEY"], "x" * 32_769, "larger than 32 KiB"),
        (["set", "KEY"], "a\0b", "no text"),
        (["set"], VALUE, "one name"),
        (["list", "KEY"], "", "takes no name"),
        (["set", "KEY", "--team"], "", "unrecognized arguments: --team"),
    ],
)
def test_what_cannot_be_is_refused(words: list[str], text: str, sentence: str, stored: Laptop, tmp_path: Path) -> None:
    """Status 2; what was there stays. No message has a value."""
    done = stored.bp("secret", *words, text=text)

    assert (done.returncode, sentence in done.stderr) == (2, True), done.stderr
    assert "hidden" not in done.stdout + done.stderr
    assert (tmp_path / "homes/small.cellar" / _FOLDER / "HF_TOKEN").read_text() == f"{VALUE}\n"


def test_a_run_gets_secrets_as_variables(stored: Laptop, record: Record) -> None:
    """By their names or others. The record has the names, and no list of processes a value."""
    done = stored.bp("run", "--secret", "HF_TOKEN", "--secret", "wandb-key=WANDB_API_KEY", "--", "true")

    assert done.returncode == 3, done.stderr
    assert given(stored)["secrets"] == {"HF_TOKEN": VALUE, "WANDB_API_KEY": "second"}
    assert record.tags["secrets"] == "HF_TOKEN wandb-key=WANDB_API_KEY"
    assert VALUE not in json.dumps(record.runs) + (stored.programs / "ssh.log").read_text()


@pytest.mark.parametrize(
    ("words", "sentence", "fix"),
    [
        (["HF_TOKE"], "small.cellar has no secret HF_TOKE", "write HF_TOKEN, or run `bp secret set HF_TOKE`"),
        (["OTHER"], "small.cellar has no secret OTHER", "run `bp secret set OTHER`"),
        (["HF_TOKEN", "--on", "titan-03"], "titan-03.cellar has no secret HF_TOKEN", "`bp secret set HF_TOKEN`"),
        (["HF_TOKEN=hf_hidden"], "argument --secret: the value is not of the form", ""),
        (["HF_TOKEN=MLFLOW_RUN_ID"], "argument --secret", ""),
        (["BEDPLATE_HUB"], "argument --secret", ""),
        (["CUDA-VISIBLE-DEVICES"], "argument --secret", ""),
    ],
)
def test_a_secret_that_its_place_lacks_is_refused(
    words: list[str], sentence: str, fix: str, stored: Laptop, record: Record
) -> None:
    """Status 242 before the start, with the place, the nearest name and the command that sets it."""
    done = stored.bp("run", "--secret", *words, "--", "true")

    assert (done.returncode, sentence in done.stderr, fix in done.stderr) == (242, True, True), done.stderr
    assert "hidden" not in done.stderr
    assert not record.runs


def test_a_run_in_the_cluster_reads_the_namespace(laptop: Laptop, cluster: Cluster) -> None:
    """A secret that only machines have is no secret there."""
    store(laptop, "HF_TOKEN")
    words = ("run", "--dry-run", "--group", "batch", "--secret", "HF_TOKEN", "--", "true")
    assert laptop.bp(*words).returncode == 0

    cluster.data.clear()

    done = laptop.bp(*words)
    assert (done.returncode, "cluster has no secret HF_TOKEN" in done.stderr) == (242, True), done.stderr


@pytest.mark.parametrize(
    ("owner", "words", "secrets"),
    [
        ("ada", [], {"HF_TOKEN": VALUE}),
        ("ada", ["--secret", "wandb-key"], {"wandb_key": "second"}),
        ("bob", ["--secret", "wandb-key=HF_TOKEN"], {"HF_TOKEN": "second"}),
    ],
)
def test_a_repeat_has_the_same_secrets(
    owner: str, words: list[str], secrets: Mapping[str, str], stored: Laptop, record: Record
) -> None:
    """By their names, unless others are given. For a colleague's run the person must name their own."""
    laptop = stored
    program(laptop, "")
    assert laptop.bp("run", "--secret", "HF_TOKEN", "--", "true").returncode == 0
    name = record.tags["id"]
    tags = {**record.tags, "owner": owner}
    record.runs[-1]["data"]["tags"] = [{"key": f"bedplate.{key}", "value": value} for key, value in tags.items()]
    record.packs |= {path.replace("/ada/", f"/{owner}/"): pack for path, pack in record.packs.items()}

    done = laptop.bp("again", name, *words)

    assert done.returncode == 0, done.stderr
    assert given(laptop)["secrets"] == secrets
    if owner != "ada":
        refused = laptop.bp("again", name)
        assert (refused.returncode, "the secrets HF_TOKEN" in refused.stderr) == (242, True)


def test_no_tag_gives_a_secret_to_a_variable_of_the_agent(stored: Laptop, record: Record) -> None:
    """Colleagues can change tags."""
    program(stored, "")
    stored.bp("run", "--", "true")
    name, tags = record.tags["id"], {**record.tags, "secrets": "HF_TOKEN=BEDPLATE_HUB"}
    record.runs[-1]["data"]["tags"] = [{"key": f"bedplate.{key}", "value": value} for key, value in tags.items()]

    done = stored.bp("again", name)

    assert (done.returncode, "has no secrets" in done.stderr) == (242, True), done.stderr
