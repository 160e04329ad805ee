"""Reports of a rehearsal."""

import pytest

from bedplate.rehearsal.rehearse import Phase, Report, StackReport, document
from bedplate.rehearsal.stack import Run
from bedplate.rehearsal.state import Entry, Failure, Op, Snapshot, Step
from bedplate.report.rehearsal import change_lines, failure_lines, rehearsal_lines

SUBNET = "urn:pulumi:lab.shared::bedplate::aws:ec2/subnet:Subnet::a-nodes"
GROUP = "urn:pulumi:lab.shared::bedplate::aws:autoscaling/group:Group::train"
MADE = Snapshot({SUBNET: Entry(urn=SUBNET, custom=True, inputs={}, outputs={})})
SAME = (Step(Op.SAME, SUBNET),)


def _run(*steps: Step, failures: tuple[Failure, ...] = (), left: Snapshot = MADE) -> Run:
    return Run(steps, failures, left, seconds=0.25)


def _stack(**runs: Run) -> StackReport:
    return StackReport("lab.shared", {Phase(name): run for name, run in runs.items()})


def test_a_stack_is_one_line() -> None:
    """Created, changed again, destroyed and kept resources, and the time."""
    stack = _stack(
        create=_run(Step(Op.CREATE, SUBNET)),
        again=_run(*SAME),
        destroy=_run(Step(Op.DELETE, SUBNET), left=Snapshot()),
    )

    head, row, *_, last = rehearsal_lines(Report((stack,), seconds=1.0, calls=3))

    assert head.split() == ["stack", "created", "again", "changed", "destroyed", "kept", "time"]
    assert row.split() == ["lab.shared", "1", "no", "change", "-", "1", "-", "0.8", "s"]
    assert last == "1 resource of 1 type in a simulated AWS, 1.0 s"


def test_a_fake_is_told_with_its_reason() -> None:
    """Types without a simulation are listed after their number."""
    urn = "urn:pulumi:lab.us-west-2::bedplate::aws:ec2/placementGroup:PlacementGroup::train"
    made = Snapshot({urn: Entry(urn=urn, custom=True, inputs={}, outputs={})})

    *_, count, fake = rehearsal_lines(Report((_stack(create=_run(left=made)),), seconds=1.0, calls=3))

    assert count == "1 resource of 1 type in a simulated AWS, 1 type faked, 1.0 s"
    assert fake == "faked:   aws:ec2:PlacementGroup   moto has no placement groups"


def test_a_program_reads_where_the_file_asks_for_what_failed() -> None:
    """With the line of the fleet file beside the URN; failures outside resources have none."""
    failures = (Failure(SUBNET, "InvalidSubnet.Range", "no"), Failure("", "ValueError", "no"))

    told = document(
        Report((_stack(create=_run(failures=failures)),), seconds=1.0, calls=3), lambda *place: " ".join(place)
    )

    (stack,) = told["stacks"].values()  # type: ignore[attr-defined]
    assert [one["from"] for one in stack["failures"]] == ["lab.shared a-nodes", ""]


def test_a_second_run_that_changes_is_told() -> None:
    """It must not change anything: the number is in the table, and each resource is listed with its inputs."""
    stack = _stack(create=_run(Step(Op.CREATE, SUBNET)), again=_run(Step(Op.UPDATE, SUBNET, ("tags",))))

    _, row, *told = rehearsal_lines(Report((stack,), seconds=1.0, calls=3))

    assert "1 change " in row
    assert told[1:3] == [
        "error: a second run changes lab.shared:",
        "  update   aws:ec2:Subnet a-nodes   tags",
    ]


def test_a_replacement_is_told_once() -> None:
    """Its three steps are one row, with the changed inputs."""
    steps = (
        Step(Op.CREATE_REPLACEMENT, SUBNET, ("cidrBlock",)),
        Step(Op.REPLACE, SUBNET, ("cidrBlock",)),
        Step(Op.UPDATE, GROUP, ("maxSize",)),
        Step(Op.DELETE_REPLACED, SUBNET),
    )

    _, _, *told = change_lines(_stack(change=_run(*steps)))

    assert told == [
        "  replace   aws:ec2:Subnet a-nodes        cidrBlock",
        "  update    aws:autoscaling:Group train   maxSize",
    ]


def test_a_message_of_many_lines_stays_under_its_head() -> None:
    """All its lines are indented."""
    failed = Failure("", "OutputToStringError", "no text\n\nuse apply")

    _, _, *told = failure_lines(_stack(create=_run(failures=(failed,))))

    assert told == ["    no text", "", "    use apply"]


def test_a_change_of_nothing_is_not_told() -> None:
    """Stacks that a change does not affect have no lines."""
    assert not list(change_lines(_stack(change=_run(*SAME))))


@pytest.mark.parametrize(
    ("urn", "key", "subject"),
    [
        (SUBNET, "cidrBlock", "aws:ec2:Subnet a-nodes cidrBlock"),
        (SUBNET, "", "aws:ec2:Subnet a-nodes"),
        ("", "", "the program"),
    ],
)
def test_a_failure_names_its_resource(urn: str, key: str, subject: str) -> None:
    """With the property, AWS's code and AWS's message."""
    failure = Failure(urn, "InvalidSubnet.Range", "the CIDR is invalid", key=key)

    _, head, message = failure_lines(_stack(create=_run(failures=(failure,))))

    assert head == f"lab.shared  {subject}   InvalidSubnet.Range"
    assert message == "    the CIDR is invalid"


@pytest.mark.parametrize(
    ("place", "asker", "more"),
    [
        ("lab.yaml:80:3 storage.data", "storage.data", ["    from lab.yaml:80:3 storage.data"]),
        ("", "the program", []),
    ],
)
def test_protected_resources_that_leave_are_told_together(place: str, asker: str, more: list[str]) -> None:
    """By the part of the fleet file, with all names and the commands to delete them."""
    gone = tuple(Failure(urn, "Protected", "it is protected") for urn in (SUBNET, GROUP))

    _, head, told, *names = failure_lines(_stack(change=_run(failures=gone)), lambda _stack, _name: place)

    assert head == "lab.shared  2 resources no longer declared   Protected"
    assert told == f"    {asker} no longer declares these protected resources:"
    assert names[:2] == ["      aws:ec2:Subnet a-nodes", "      aws:autoscaling:Group train"]
    assert "`pulumi state unprotect URN`" in names[2]
    assert names[3:] == more


def test_what_was_not_tried_is_counted() -> None:
    """Resources that depend on a failed one are skipped."""
    failures = (Failure(SUBNET, "Code", "no"), Failure(GROUP, "Skipped", "", skipped=True))

    *_, last = failure_lines(_stack(create=_run(failures=failures)))

    assert last == "    skipped because of failed dependencies: 1 resource"
