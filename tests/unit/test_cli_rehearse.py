"""`bedplate rehearse`, `graph` and `audit-graph`."""

import io
import json
import re
import shutil
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from bedplate.catalog import load_catalog
from bedplate.cli import run
from bedplate.errors import InputError
from bedplate.load import load_fleet
from bedplate.operate.rehearsal import Waves, parse_faults, waves, waves_of_change
from bedplate.plan import FleetPlan, Record, plan_fleet
from bedplate.plan.stacks import bundle_region
from bedplate.rehearsal.faults import Fault, NoCapacity, RegionDown, StackFails
from tests.testlab.rehearsal.graphs import group, rule
from tests.testlab.rehearsal.programs import EXAMPLES, plan_of

ROOT = Path(__file__).parents[2]
MINIMAL = "examples/minimal.yaml"
PROGRAM = "tests/data/cli/program.py"
LAB = plan_of(EXAMPLES / "lab.yaml")


@pytest.fixture(autouse=True)
def at_root(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run in the project's folder, so that messages contain relative paths."""
    monkeypatch.chdir(ROOT)


@pytest.mark.nightly
def test_the_readme_has_the_numbers_of_the_demo(capsys: pytest.CaptureFixture[str]) -> None:
    """`make demo` prints the table in README.md, apart from times."""
    readme = (ROOT / "README.md").read_text()
    table = readme.partition("$ make demo\n")[2].partition("```")[0]

    assert run(["rehearse", "examples/lab.yaml", "--changed", "examples/lab-grown.yaml"]) == 0

    output = _without_times(capsys.readouterr().out)
    assert [line for line in _without_times(table).splitlines() if line != "..." and line not in output] == []


def _without_times(text: str) -> str:
    """Return a text without seconds, and what follows them on a line."""
    return re.sub(r" +[0-9.]+ s\b.*", "", text)


def test_a_fleet_is_rehearsed_from_end_to_end(capsys: pytest.CaptureFixture[str]) -> None:
    """Every stack is created, runs again without a change, and is destroyed except for protected resources."""
    assert run(["rehearse", MINIMAL]) == 0

    out, err = capsys.readouterr()
    head, *rows = out.splitlines()
    assert head.split() == ["stack", "created", "again", "changed", "destroyed", "kept", "time"]
    assert [row.split()[0].partition(".")[2] for row in rows[:2]] == ["shared", "us-west-2"]
    assert all("no change" in row for row in rows[:2])
    assert rows[-1] == "next: `bedplate up`"
    assert "creating" in err


def test_a_program_reads_what_became_of_each_stack(capsys: pytest.CaptureFixture[str]) -> None:
    """One document on stdout, with the documented keys."""
    assert run(["rehearse", MINIMAL, "--stack", "shared", "--json"]) == 0

    document = json.loads(capsys.readouterr().out)
    (stack,) = document["stacks"].values()
    assert document["ok"] is True
    assert stack["second_run"] == {"same": stack["created"], "changed": 0}
    assert {"changed", "destroyed", "kept", "seconds", "types"} <= stack.keys()
    assert {kind["support"] for kind in stack["types"].values()} <= {"rehearsed", "faked"}


def test_a_changed_fleet_shows_its_steps(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Only the resources that the edit affects, with their changed inputs."""
    changed = tmp_path / "changed.yaml"
    changed.write_text((ROOT / MINIMAL).read_text().replace("owner: ", "owner: new-"), encoding="utf-8")

    assert run(["rehearse", MINIMAL, "--stack", "shared", "--changed", str(changed)]) == 0

    output = capsys.readouterr().out
    edits, _, steps = output.partition("changes to")
    assert edits.startswith(
        "new nodes only: running machines do not change\n    owner   ada@lab.example -> new-ada@lab.example"
    )
    (role,) = (line for line in steps.splitlines() if "aws:iam:Role solo-ssh" in line)
    assert role.split() == ["update", "aws:iam:Role", "solo-ssh", "tags", "name"]


def test_a_changed_fleet_ends_with_the_new_fleet(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The resources and the price of a deployment are those of the changed file."""
    text = (ROOT / MINIMAL).read_text().replace("max: 4", "max: 5")
    region = "  us-east-1: {zones: [us-east-1a]}\n  us-west-2:"
    (tmp_path / "new.yaml").write_text(text.replace("  us-west-2:", region), encoding="utf-8")
    started = time.perf_counter()

    assert run(["rehearse", MINIMAL, "--changed", str(tmp_path / "new.yaml")]) == 0

    out = capsys.readouterr().out
    *_, (outlook) = out.partition("a deployment would have:")
    assert "  us-east-1   10." in outlook
    assert "to -5" in outlook
    assert outlook.rstrip().endswith("next: `bedplate up`")
    (seconds,) = re.findall(r"simulated AWS.*, ([0-9.]+) s$", out, re.MULTILINE)
    assert float(seconds) >= time.perf_counter() - started - 1


def test_an_interrupted_rehearsal_says_that_it_stopped(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The exit status is 130."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("bedplate.operate.rehearsal.run_rehearsal", interrupt)

    assert run(["rehearse", MINIMAL]) == 130

    assert "stopped; nothing is left behind" in capsys.readouterr().err


def test_a_program_reads_what_was_edited(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In the form of `diff`, beside the steps."""
    changed = tmp_path / "changed.yaml"
    changed.write_text((ROOT / MINIMAL).read_text().replace("max: 4", "max: 5"), encoding="utf-8")

    assert run(["rehearse", MINIMAL, "--stack", "shared", "--changed", str(changed), "--json"]) == 0

    (edit,) = json.loads(capsys.readouterr().out)["edits"]
    assert (edit["key"], edit["old"], edit["new"], edit["effect"]) == ("groups.workbench.nodes.max", 4, 5, "free")


def test_a_fleet_keeps_every_rule_about_what_its_stacks_hold(capsys: pytest.CaptureFixture[str]) -> None:
    """The resources are checked, and the document contains the faults."""
    assert run(["rehearse", MINIMAL, "--json"]) == 0

    assert json.loads(capsys.readouterr().out)["faults"] == []


def test_a_broken_rule_is_told_and_is_the_exit_status(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Status 3: here the tag owner has another name."""
    monkeypatch.setattr("stacks.options.OWNER", "boss")

    assert run(["rehearse", MINIMAL, "--stack", "shared"]) == 3

    output = capsys.readouterr().out
    assert "S701 no-owner" in output
    assert "    from examples/minimal.yaml:3:7 name\n" in output
    assert "in the resources" in output


def test_a_program_reads_where_the_file_asks_for_what_breaks_a_rule(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The document has the line of the fleet file beside the URN."""
    monkeypatch.setattr("stacks.options.OWNER", "boss")

    assert run(["rehearse", MINIMAL, "--stack", "shared", "--json"]) == 3

    faults = json.loads(capsys.readouterr().out)["faults"]
    assert "examples/minimal.yaml:3:7 name" in {fault["from"] for fault in faults}
    assert all(fault["from"].startswith("examples/minimal.yaml:") for fault in faults)


def test_an_unknown_part_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """Status 2, with the parts of the fleet."""
    assert run(["rehearse", MINIMAL, "--stack", "us-moon-1"]) == 2

    assert "one of shared, " in capsys.readouterr().err


def test_a_program_of_ones_own_is_rehearsed(capsys: pytest.CaptureFixture[str]) -> None:
    """The stack is named after the file, and the program's output goes to stderr."""
    assert run(["rehearse", "--program", PROGRAM, "--json"]) == 0

    out, err = capsys.readouterr()
    stack = json.loads(out)["stacks"]["program"]
    assert stack["created"] == 2
    assert stack["outputs"] == {"bucket": "lab-results-example", "names": ["a", "b"], "password": "[secret]"}
    assert "a program may print" in err


def test_what_a_program_exports_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    """The report names each output of a program, and masks secrets."""
    assert run(["rehearse", "--program", PROGRAM]) == 0

    rows = capsys.readouterr().out.partition("exports:\n")[2].splitlines()
    assert [row.split(maxsplit=1) for row in rows] == [
        ["bucket", "lab-results-example"],
        ["names", '["a", "b"]'],
        ["password", "[secret]"],
    ]


def test_a_program_leaves_nothing_behind(tmp_path: Path) -> None:
    """Its modules are imported again on each run, so that they declare their resources again."""
    (tmp_path / "network.py").write_text("from pulumi_aws.ec2 import Vpc\nVpc('lab', cidr_block='10.0.0.0/16')\n")
    (tmp_path / "main.py").write_text("import network\n")
    path = list(sys.path)

    assert run(["rehearse", "--program", str(tmp_path / "main.py")]) == 0

    assert "network" not in sys.modules
    assert sys.path == path
    assert Path.cwd() == ROOT


@pytest.mark.parametrize(
    ("program", "message"),
    [
        ("raise ValueError('no such luck')", "no such luck"),
        ("import sys; sys.exit(3)", "the program exited with status 3"),
        ("import sys\nsys.exit(3)", "main.py:2)"),
        ("print(", "(main.py, line 1)\n"),
        ("from pulumi_aws.ec2 import Vpc; Vpc('lab', cidr_block='10.0.0.0/8')", "aws:ec2:Vpc lab"),
    ],
)
def test_a_program_that_fails_is_told_without_a_traceback(
    program: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Status 2, with the resource and the reason."""
    (tmp_path / "main.py").write_text(program)

    assert run(["rehearse", "--program", str(tmp_path / "main.py")]) == 2

    out, err = capsys.readouterr()
    assert message in out
    assert "Traceback" not in out + err


def test_a_program_may_name_images_that_the_rehearsal_cannot_know(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """AMI ids of a valid form are assumed to exist, and reported."""
    (tmp_path / "main.py").write_text(
        "from pulumi_aws.ec2 import LaunchTemplate\n"
        "LaunchTemplate('known', image_id='ami-0123456789abcdef0')\n"
        "LaunchTemplate('same', image_id='ami-0123456789abcdef0')\n"
        "LaunchTemplate('typo', image_id='ami-0123')\n"
    )

    assert run(["rehearse", "--program", str(tmp_path / "main.py"), "--json"]) == 2

    document = json.loads(capsys.readouterr().out)
    failures = document["stacks"]["main"]["failures"]
    assert [failure["urn"].rpartition("::")[2] for failure in failures] == ["typo"]
    assert document["assumed_images"] == [{"region": "us-east-1", "image": "ami-0123456789abcdef0"}]


@pytest.mark.parametrize(
    ("port", "named", "result"),
    [(22, "", (3, ["S101"])), (6443, "", (3, ["S102"])), (8443, "", (0, ["S109"])), (6443, "tcp/6443", (0, []))],
    ids=["SSH", "service of a cluster", "unknown service", "named"],
)
def test_a_program_that_opens_a_port_to_the_internet_is_reported(
    port: int, named: str, result: tuple[int, list[str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Unless the group's tag names the port. Rules of bedplate's own stacks, such as owner tags, do not count."""
    (tmp_path / "main.py").write_text(
        "from pulumi_aws.ec2 import SecurityGroup, Vpc\n"
        "from pulumi_aws.vpc import SecurityGroupIngressRule\n"
        f"rule = dict(ip_protocol='tcp', from_port={port}, to_port={port}, cidr_ipv4='0.0.0.0/0')\n"
        "vpc = Vpc('lab', cidr_block='10.0.0.0/16').id\n"
        f"group = SecurityGroup('web', vpc_id=vpc, tags={{'bedplate:public': '{named}'}})\n"
        "SecurityGroupIngressRule('web', security_group_id=group.id, **rule)\n"
    )

    status = run(["rehearse", "--program", str(tmp_path / "main.py"), "--json"])

    faults = json.loads(capsys.readouterr().out)["faults"]
    assert (status, [fault["code"] for fault in faults]) == result


def test_the_supported_types_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    """One line for each type, with the missing parts of its simulation."""
    assert run(["rehearse", "--types"]) == 0

    *rows, last = capsys.readouterr().out.splitlines()
    placement = next(row for row in rows if row.startswith("aws:ec2:PlacementGroup "))
    assert placement.split(maxsplit=2)[1:] == ["faked", "moto has no placement groups"]
    assert last == f"{len(rows)} types; a program with a resource of another type is rejected"


def test_a_program_reads_the_supported_types(capsys: pytest.CaptureFixture[str]) -> None:
    """The document names types by Pulumi's type tokens."""
    assert run(["rehearse", "--types", "--json"]) == 0

    types = json.loads(capsys.readouterr().out)["types"]
    assert types["aws:ec2/subnet:Subnet"] == {"support": "rehearsed", "note": ""}
    assert all(kind["note"] for kind in types.values() if kind["support"] == "faked")


def test_a_missing_program_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """Status 2, before any simulation."""
    assert run(["rehearse", "--program", "no/such.py"]) == 2

    assert "no such file: no/such.py" in capsys.readouterr().err


def test_a_graph_lists_a_stacks_resources(capsys: pytest.CaptureFixture[str]) -> None:
    """In the form that `audit-graph` reads."""
    assert run(["graph", MINIMAL, "--stack", "shared"]) == 0

    nodes = json.loads(capsys.readouterr().out)
    promised = {"urn", "type", "name", "parent", "custom", "inputs", "id", "outputs", "dependencies"}
    assert all(promised | {"property_dependencies", "protect", "provider"} <= node.keys() for node in nodes)
    assert {node["type"] for node in nodes} >= {"pulumi:pulumi:Stack", "pulumi:providers:aws"}


def test_an_unchanged_fleet_is_not_created_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The second graph comes from the cache; an edit of the fleet file, its lock or a damaged cache creates it anew."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    fleet = Path(shutil.copy(MINIMAL, tmp_path / "fleet.yaml"))
    created: list[int] = []

    def create(*_: object) -> tuple[list[dict[str, object]], bool]:
        created.append(1)
        return [{"made": len(created)}], True

    monkeypatch.setattr("bedplate.operate.rehearsal.create_stacks", create)
    command = ["graph", str(fleet), "--stack", "shared"]

    for _ in range(2):
        run(command)
    assert (capsys.readouterr().out.count('"made": 1'), len(created)) == (2, 1)

    fleet.write_text(fleet.read_text() + "# edited\n")
    run(command)
    run(["plan", str(fleet), "--write"])
    run(command)
    for file in (tmp_path / "cache/bedplate").glob("*.json"):
        file.write_text("{")
    run(command)
    assert len(created) == 4


@pytest.mark.parametrize("arguments", [[], ["--all", "--stack", "shared"]])
def test_a_graph_is_of_one_stack_or_of_all(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """One of --stack and --all is required."""
    assert run(["graph", MINIMAL, *arguments]) == 2

    assert "--stack PART or --all" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("region-down:us-east-1", RegionDown("us-east-1")),
        ("no-capacity:m7i.large@us-west-2a", NoCapacity("m7i.large", "us-west-2a")),
    ],
)
def test_faults_are_read_back_as_they_are_written(text: str, fault: Fault) -> None:
    """The text of a fault is the value of its option."""
    assert parse_faults([text], LAB) == (fault,)
    assert str(fault) == text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rain", "unknown fault rain"),
        ("region-down", "unknown fault region-down"),
        ("no-capacity:m7i.large", "unknown fault no-capacity:m7i.large"),
        ("region-down:us-moon-1", "the fleet has no region us-moon-1"),
        ("no-capacity:m7i.large@us-east-1f", "the fleet has no zone us-east-1f"),
    ],
)
def test_an_invalid_fault_is_refused(text: str, message: str) -> None:
    """Status 2, with the valid forms."""
    with pytest.raises(InputError, match=message) as error:
        parse_faults([text], LAB)

    assert error.value.fix


def test_a_fault_leaves_a_program_partially_created(capsys: pytest.CaptureFixture[str]) -> None:
    """Status 6, with the URNs of missing resources and the failed requests."""
    assert run(["rehearse", "--program", PROGRAM, "--fault", "region-down:us-east-1", "--json"]) == 6

    document = json.loads(capsys.readouterr().out)
    assert document["ok"] is False
    assert [urn.rpartition("::")[2] for urn in document["missing"]["program"]] == ["results", "bucket-name"]
    assert document["injected_faults"] == [{"fault": "region-down:us-east-1", "hits": 1}]
    assert document["shortages"] == []


CLI_WAVES_LAB = Path(__file__).parents[2] / "examples/lab.yaml"
REGIONS = ("lab.us-west-2", "lab.us-east-1", "lab.eu-north-1")


@pytest.fixture(scope="module")
def plan() -> FleetPlan:
    """Return the plan of the larger example."""
    return plan_fleet(load_fleet(CLI_WAVES_LAB, load_catalog()).fleet, Record({}), load_catalog())


def _names(stack_waves: Waves) -> tuple[tuple[str, ...], ...]:
    return tuple(tuple(stack.name for stack in wave) for wave in stack_waves)


@pytest.mark.parametrize(
    ("parts", "names"),
    [
        ((), (("lab.shared",), REGIONS, ("lab.links",))),
        (("shared",), (("lab.shared",),)),
        (("us-east-1",), (("lab.shared",), ("lab.us-east-1",))),
        (("links",), (("lab.shared",), REGIONS, ("lab.links",))),
    ],
)
def test_a_part_brings_what_it_reads(
    parts: tuple[str, ...], names: tuple[tuple[str, ...], ...], plan: FleetPlan
) -> None:
    """Regions read the shared stack, and the stack `links` reads all regions."""
    assert _names(waves(plan, parts)) == names


def test_cli_waves_an_unknown_part_is_refused(plan: FleetPlan) -> None:
    """The message names the parts of the fleet."""
    with pytest.raises(InputError) as refusal:
        waves(plan, ["us-moon-1"])

    assert "us-west-2" in refusal.value.fix


def test_a_part_may_go_with_the_change(plan: FleetPlan) -> None:
    """A region that the changed file drops is destroyed before `shared` forgets it."""
    changed = replace(plan, regions=plan.regions[:2])

    change = waves_of_change(plan, changed, ["eu-north-1"])

    assert [(wave.stacks[0].name, wave.destroys) for wave in change] == [
        ("lab.eu-north-1", True),
        ("lab.shared", False),
    ]


OPEN = [group(), rule("0.0.0.0/1"), rule("128.0.0.0/1")]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return the file of a graph with SSH open to the internet."""
    file = tmp_path / "graph.json"
    file.write_text(json.dumps(OPEN), encoding="utf-8")
    return file


def test_a_violation_is_told_and_is_the_exit_status(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Status 3, with stack, resource, property, rule, message and fix."""
    assert run(["audit-graph", str(path)]) == 3

    head, message, *_, last = capsys.readouterr().out.splitlines()
    assert head.startswith("lab   aws:vpc:SecurityGroupIngressRule 0.0.0.0/1")
    assert head.endswith("cidrIpv4   S101 open-to-the-internet")
    assert "SSH (22) is open to " in message
    assert last.startswith("1 error in ")


def test_a_program_reads_the_faults(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The document has faults in the documented form."""
    assert run(["audit-graph", str(path), "--json"]) == 3

    faults = json.loads(capsys.readouterr().out)["faults"]
    assert [fault["code"] for fault in faults] == ["S101"]
    assert faults[0].keys() == {"code", "level", "urn", "key", "message", "fix"}


def test_a_graph_may_come_through_a_pipe(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """From stdin; a valid graph has no faults."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(json.dumps([group()]).encode())))

    assert run(["audit-graph", "-"]) == 0

    assert capsys.readouterr().out.startswith("no faults in stdin (1 resource, ")


@pytest.mark.parametrize("data", [None, b"\xff\xfe", b"{", b'{"resources": []}'])
def test_what_is_no_graph_is_refused(data: bytes | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Status 2, with the position; for a missing file, too."""
    file = tmp_path / "graph.json"
    if data is not None:
        file.write_bytes(data)

    assert run(["audit-graph", str(file)]) == 2

    assert str(file) in capsys.readouterr().err


def test_a_region_gets_its_bundle_with_its_own_stack() -> None:
    """Its machines start then; later stacks can fail."""
    stacks = [stack.name for wave in waves(LAB) for stack in wave]

    assert [bundle_region(LAB, name) for name in stacks] == [None, "us-west-2", "us-east-1", "eu-north-1", None]


def test_a_stack_of_the_fleet_can_fail() -> None:
    """The fault names a part."""
    assert parse_faults(["stack-fails:links"], LAB) == (StackFails("links"),)
    with pytest.raises(InputError, match="the fleet has no part north"):
        parse_faults(["stack-fails:north"], LAB)


@pytest.fixture
def pair(tmp_path: Path) -> Path:
    """Return a fleet of two regions with a machine in each, which have a stack `links`."""
    text = (EXAMPLES / "minimal.yaml").read_text().partition("\nstorage:")[0]
    people = "\npeople:\n" + (EXAMPLES / "minimal.yaml").read_text().partition("\npeople:\n")[2]
    text = text.replace("\ngroups:", "  us-east-1:\n    zones: [us-east-1a]\n\ngroups:")
    sizes = "    types: [m7i.large]\n    nodes: {min: 1, max: 1}\n    ladder: [{region: us-east-1}]\n"
    other = f"  other:\n    use: ssh\n{sizes}"
    file = tmp_path / "fleet.yaml"
    file.write_text(f"{text}{other}{people}")
    return file


@pytest.mark.nightly
def test_links_that_fail_once_abandon_no_machine(pair: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each region has its bundle before `links`; a second run makes what is missing."""
    assert run(["rehearse", str(pair), "--fault", "stack-fails:links", "--json"]) == 6

    document = json.loads(capsys.readouterr().out)
    assert document["abandoned"] == []
    assert {*document["missing"]} == {"solo.links"}
    assert document["injected_faults"] == [{"fault": "stack-fails:links", "hits": 1}]


@pytest.mark.nightly
def test_a_delivery_after_links_is_found(
    pair: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The report names each group whose machines would end by themselves, and the exit status is 3."""

    def late(_plan: FleetPlan, stack: str) -> str | None:
        return "us-west-2" if stack.endswith(".links") else None

    monkeypatch.setattr("bedplate.operate.rehearsal.bundle_region", late)

    assert run(["rehearse", str(pair), "--fault", "stack-fails:links"]) == 3

    output = capsys.readouterr().out
    assert "error: machines of workbench-us-west-2 are abandoned" in output
    assert "error: machines of other-us-east-1 are abandoned" in output


@pytest.mark.nightly
def test_a_region_that_fails_has_no_machines_to_abandon(pair: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A stack that fails before it makes anything starts none."""
    assert run(["rehearse", str(pair), "--fault", "stack-fails:us-east-1", "--json"]) == 6

    assert json.loads(capsys.readouterr().out)["abandoned"] == []
