"""How faults are told to an operator."""

from bedplate.checks.fault import Fault, Level
from bedplate.report.faults import fault_lines, tally, verdict_lines

TYPE = Fault(
    code="E301",
    level=Level.ERROR,
    key="groups.train.types.0",
    message="p5.49xlarge is no EC2 instance type",
    fix="p5.48xlarge is the nearest",
    file="lab.yaml",
    line=44,
    column=15,
)
WHOLE = Fault("E008", Level.ERROR, "", "the file is empty", "", file="lab.yaml")
DOUBT = Fault("W512", Level.WARNING, "people", "nobody is an administrator", "", "lab.yaml", 9, 1)


def test_a_fault_leads_with_its_place() -> None:
    """Place, key and rule on one line, in a form that editors jump to; what and fix below it."""
    assert fault_lines([TYPE]) == (
        "lab.yaml:44:15   groups.train.types.0   E301 unknown-instance-type",
        "    p5.49xlarge is no EC2 instance type",
        "    fix: p5.48xlarge is the nearest",
    )


def test_a_fault_of_the_whole_file_has_no_line() -> None:
    """There is no line 0."""
    assert fault_lines([WHOLE])[0] == "lab.yaml   (the file)   E008 empty-file"


def test_faults_stand_under_one_another() -> None:
    """Keys and rules are found by running down the column."""
    heads = [line for line in fault_lines([TYPE, DOUBT]) if not line.startswith(" ")]

    assert len({head.index(key) for head, key in zip(heads, ("groups", "people"), strict=True)}) == 1


def test_a_long_message_is_wrapped() -> None:
    """A terminal of 100 columns is enough."""
    long = Fault("E301", Level.ERROR, "a", "word " * 60, "")

    assert max(len(line) for line in fault_lines([long])) <= 100


def test_a_name_is_never_broken() -> None:
    """A command that is copied from a fix must run, wherever the line ends."""
    long = Fault("E231", Level.ERROR, "a", "", f"{'word ' * 16}`--release pool/us-west-2`")

    assert "    pool/us-west-2`" in fault_lines([long])


def test_faults_are_counted_by_level() -> None:
    """Errors first: they are what stops the command."""
    assert tally([DOUBT, TYPE, WHOLE]) == "2 errors, 1 warning"


def test_the_verdict_comes_last() -> None:
    """Nothing that matters scrolls away: how many there are, and how to learn more."""
    *_, last = verdict_lines("lab.yaml", [TYPE, DOUBT])

    assert last.startswith("1 error, 1 warning in lab.yaml")
    assert last.endswith("`bedplate check --explain E301` says more")
