"""Tests of the report of a rehearsal for operators."""

import pytest

from bedplate.rehearsal.rehearse import Phase, Report, StackReport, document
from bedplate.rehearsal.stack import Run
from bedplate.rehearsal.state import Entry, Failure, Op, Snapshot, Step
from bedplate.report.rehearsal import change_lines, failure_lines, rehearsal_lines

SUBNET = "urn:pulumi:lab.shared::bedplate::aws:ec2/subnet:Subnet::a-nodes"
GROUP = "urn:pulumi:lab.shared::bedplate::aws:autoscaling/group:Group::train"
CREATED = Snapshot({SUBNET: Entry(urn=SUBNET, custom=True, inputs={}, outputs={})})
SAME = (Step(Op.SAME, SUBNET),)


def _run(*steps: Step, failures: tuple[Failure, ...] = (), left: Snapshot = CREATED) -> Run:
    return Run(steps, failures, left, seconds=0.25)


def _stack(**runs: Run) -> StackReport:
    return StackReport("lab.shared", {Phase(name): run for name, run in runs.items()})


def test_a_stack_is_one_line() -> None:
    """The line has the created, changed, destroyed and kept resources, and the time."""
    stack = _stack(
        create=_run(Step(Op.CREATE, SUBNET)),
        again=_run(*SAME),
        destroy=_run(Step(Op.DELETE, SUBNET), left=Snapshot()),
    )

    head, row, *_, last = rehearsal_lines(Report((stack,), seconds=1.0, calls=3))

    assert head.split() == ["stack", "created", "again", "changed", "destroyed", "kept", "time"]
    assert row.split() == ["lab.shared", "1", "no", "change", "-", "1", "-", "0.8", "s"]
    assert last == "1 resource of 1 type in a simulated AWS, 1.0 s"


def test_a_faked_type_is_listed_with_its_reason() -> None:
    """A type that is not simulated by moto is listed with the reason below the count."""
    urn = "urn:pulumi:lab.us-west-2::bedplate::aws:ec2/placementGroup:PlacementGroup::train"
    snapshot = Snapshot({urn: Entry(urn=urn, custom=True, inputs={}, outputs={})})

    *_, count, fake = rehearsal_lines(Report((_stack(create=_run(left=snapshot)),), seconds=1.0, calls=3))

    assert count == "1 resource of 1 type in a simulated AWS, 1 type faked, 1.0 s"
    assert fake == "faked:   aws:ec2:PlacementGroup   moto has no placement groups"


def test_an_assumed_image_is_listed() -> None:
    """An AMI that the rehearsal cannot know is listed with its region."""
    *_, line = rehearsal_lines(Report((), seconds=1.0, calls=3, assumed_images=(("us-east-1", "ami-1"),)))

    assert line == "assumed: ami-1 exists in us-east-1"


def test_the_document_names_the_place_in_the_fleet_file() -> None:
    """A failure has the place in the fleet file; a failure without a resource has none."""
    failures = (Failure(SUBNET, "InvalidSubnet.Range", "no"), Failure("", "ValueError", "no"))

    result = document(
        Report((_stack(create=_run(failures=failures)),), seconds=1.0, calls=3), lambda *place: " ".join(place)
    )

    (stack,) = result["stacks"].values()  # type: ignore[attr-defined]
    assert [failure["from"] for failure in stack["failures"]] == ["lab.shared a-nodes", ""]


def test_changes_of_a_second_run_are_listed() -> None:
    """The number replaces `no change`, and each resource is listed with its changed inputs."""
    stack = _stack(create=_run(Step(Op.CREATE, SUBNET)), again=_run(Step(Op.UPDATE, SUBNET, ("tags",))))

    _, row, *lines = rehearsal_lines(Report((stack,), seconds=1.0, calls=3))

    assert "1 change " in row
    assert lines[1:3] == [
        "error: a second run changes lab.shared:",
        "  update   aws:ec2:Subnet a-nodes   tags",
    ]


def test_a_replacement_is_one_line() -> None:
    """The three steps of a replacement are one line with the changed inputs."""
    steps = (
        Step(Op.CREATE_REPLACEMENT, SUBNET, ("cidrBlock",)),
        Step(Op.REPLACE, SUBNET, ("cidrBlock",)),
        Step(Op.UPDATE, GROUP, ("maxSize",)),
        Step(Op.DELETE_REPLACED, SUBNET),
    )

    _, _, *lines = change_lines(_stack(change=_run(*steps)))

    assert lines == [
        "  replace   aws:ec2:Subnet a-nodes        cidrBlock",
        "  update    aws:autoscaling:Group train   maxSize",
    ]


def test_a_message_of_several_lines_is_indented() -> None:
    """Lines without indentation start another failure."""
    failed = Failure("", "OutputToStringError", "no text\n\nuse apply")

    _, _, *lines = failure_lines(_stack(create=_run(failures=(failed,))))

    assert lines == ["    no text", "", "    use apply"]


def test_an_unchanged_stack_has_no_lines() -> None:
    """Stacks that a change does not affect are not listed."""
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
    """A failure names the resource, the property, and the code and message of AWS."""
    failure = Failure(urn, "InvalidSubnet.Range", "the CIDR is invalid", key=key)

    _, head, message = failure_lines(_stack(create=_run(failures=(failure,))))

    assert head == f"lab.shared  {subject}   InvalidSubnet.Range"
    assert message == "    the CIDR is invalid"


@pytest.mark.parametrize(
    ("place", "declared_by", "more"),
    [
        ("lab.yaml:80:3 storage.data", "storage.data", ["    from lab.yaml:80:3 storage.data"]),
        ("", "the program", []),
    ],
)
def test_undeclared_protected_resources_are_listed_together(place: str, declared_by: str, more: list[str]) -> None:
    """They are listed once for each part of the file, with all names and the fix."""
    failures = tuple(Failure(urn, "Protected", "it is protected") for urn in (SUBNET, GROUP))

    _, head, reason, *names = failure_lines(_stack(change=_run(failures=failures)), lambda _stack, _name: place)

    assert head == "lab.shared  2 resources no longer declared   Protected"
    assert reason == f"    {declared_by} no longer declares these protected resources:"
    assert names[:2] == ["      aws:ec2:Subnet a-nodes", "      aws:autoscaling:Group train"]
    assert "`pulumi state unprotect URN`" in names[2]
    assert names[3:] == more


def test_skipped_resources_are_counted() -> None:
    """A skipped resource did not fail, but does not exist either."""
    failures = (Failure(SUBNET, "Code", "no"), Failure(GROUP, "Skipped", "", skipped=True))

    *_, last = failure_lines(_stack(create=_run(failures=failures)))

    assert last == "    skipped because of failed dependencies: 1 resource"
