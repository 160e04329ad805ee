"""How the weather of a rehearsal is told to an operator."""

from bedplate.rehearsal.endured import Endured
from bedplate.rehearsal.moto_launches import Shortage
from bedplate.rehearsal.report import Phase, Report, StackReport
from bedplate.rehearsal.snapshot import Entry, Snapshot
from bedplate.rehearsal.stack import Run
from bedplate.rehearsal.step import Op, Step
from bedplate.rehearsal.weather import Fault, Trouble, Weather
from bedplate.report.columns import WIDTH
from bedplate.report.weather import weather_lines

URNS = [f"urn:pulumi:lab.a::bedplate::aws:ec2/subnet:Subnet::{name}" for name in ("one", "two", "three")]
WHOLE = Snapshot({urn: Entry(urn=urn, custom=True, inputs={}, outputs={}) for urn in URNS})
SHORT = Shortage("lab-train", "us-west-2", "InsufficientInstanceCapacity", wanted=4, running=1)


def _report(*missing: str, shortages: tuple[Shortage, ...] = (), met: int = 3) -> Report:
    made = tuple(Step(Op.CREATE, urn) for urn in missing)
    runs = {Phase.CREATE: Run((), (), Snapshot(), 1.0), Phase.MEND: Run(made, (), WHOLE, 1.0)}
    weather = Weather((Fault(Trouble.ERRORS),))
    return Report((StackReport("lab.a", runs),), 2.0, 9, Endured(weather, {"errors": met}, shortages))


def test_fair_weather_is_not_told() -> None:
    """A rehearsal without faults says nothing of them."""
    assert not list(weather_lines(Report((), 0.0, 0)))


def test_what_is_missing_is_told_by_type_and_name() -> None:
    """With the share of the stack that it is."""
    assert list(weather_lines(_report(*URNS[:2]))) == [
        "",
        "weather errors: met 3 times",
        "missing while it lasted:",
        "  lab.a: 2 of 3 resources",
        "    aws:ec2:Subnet one, two",
        "when it was over, a second run made the 2 resources that were missing",
        "  a third run changed nothing",
    ]


def test_a_stack_of_which_nothing_was_made_is_told_in_a_line() -> None:
    """Its name says it all."""
    assert "  lab.a: all 3 resources" in list(weather_lines(_report(*URNS)))


def test_missing_machines_are_told_by_group_and_code() -> None:
    """How many of how many, and that they came by themselves."""
    told = list(weather_lines(_report(shortages=(SHORT,))))

    assert "  lab-train   us-west-2   InsufficientInstanceCapacity   3 of 4 machines" in told
    assert "  the groups started their machines by themselves" in told


def test_a_name_is_never_broken() -> None:
    """What is missing can be searched for as it is told, on lines of a terminal's width."""
    many = [f"urn:pulumi:lab.a::bedplate::aws:ec2/subnet:Subnet::lab-us-west-2{one}-nodes" for one in range(9)]

    told = [line for line in weather_lines(_report(*many)) if "-nodes" in line]

    assert sum(line.count("lab-us-west-2") for line in told) == sum(line.count("-nodes") for line in told) == len(many)
    assert max(map(len, told)) <= WIDTH


def test_a_fault_that_nothing_met_is_told() -> None:
    """A rehearsal that went well because nothing went wrong proves nothing."""
    assert "weather errors: met 0 times, for nothing asked for it" in list(weather_lines(_report(met=0)))
