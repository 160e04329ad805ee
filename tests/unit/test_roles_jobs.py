"""The role `jobs`: which machines have it, lingering and folders of people, and the leases of machines with GPUs."""

from dataclasses import replace

from bedplate.plan.fleet import Access, Account, Accounts
from roles.base import STAGES
from roles.catalog import names_of, roles_of
from roles.jobs.role import ENDS, RUNS, TMPFILES, UNIT, USER_UNITS, Jobs
from roles.people.accounts import LINGER, AccountState, end_departed
from roles.system import UnitStates
from tests.testlab.fakes.node import Recorder, recorded
from tests.testlab.fleets.variants import lab_node

DEBIAN = recorded("debian-12")
ADA = Account("ada", 20000, admin=True, keys=())
BEN = Account("ben", 20001, admin=False, keys=())
STATES = {UnitStates.name: ("inactive",)}
BENCH = "workbench-cpu-1.us-west-2"


def test_machines_on_which_people_log_in_have_the_role() -> None:
    """Members, gateways and workers have none; `jobs: false` removes it from a workbench."""
    bench = lab_node(BENCH)

    assert "jobs" in names_of(bench)
    assert "jobs" in names_of(lab_node("titan-03.cellar"))
    assert "jobs" not in names_of(replace(bench, jobs=False))
    assert all(
        "jobs" not in names_of(lab_node(name)) for name in ("control-1.us-west-2", "titan-01.cellar", "nas.cellar")
    )


def test_units_of_people_run_without_a_login() -> None:
    """Who may log in lingers; the role `people` ends that for who left, or may not log in any more."""
    played = Recorder(DEBIAN).play(Jobs((ADA, BEN), has_gpus=False))
    barred = replace(BEN, access=Access.NONE)
    state = AccountState(lingering=frozenset({"ada", "ben", "cy"}))
    ends = [change.name for change in end_departed(Accounts((ADA, barred), departed={"cy": 20002}), state)]

    assert [played.written(f"{LINGER}/{name}") for name in ("ada", "ben")] == ["", ""]
    assert ends == ["Disable lingering of cy", "Disable lingering of ben"]


def test_the_manager_of_each_person_writes_ends_at_boot() -> None:
    """Of runs that a power loss has cut off; it tries again while the hub is away."""
    played = Recorder(DEBIAN).play(Jobs((ADA, BEN), has_gpus=False))

    assert "Restart=on-failure" in played.written(f"{USER_UNITS}/{ENDS}")
    assert f"Wants={ENDS}" in played.written(f"{USER_UNITS}/default.target.d/bedplate.conf")


def test_everybody_who_may_log_in_lingers() -> None:
    """The plan of a machine says who."""
    bench = lab_node(BENCH)
    (jobs,) = (role for role in roles_of(bench) if isinstance(role, Jobs))

    assert [person.name for person in jobs.people] == [person.name for person in bench.accounts.people]
    assert not jobs.has_gpus


def test_nobody_can_make_the_folder_of_another_person() -> None:
    """The folders of runs belong to people; what nobody used for a month is removed, on /scratch too."""
    rows = Recorder(DEBIAN).play(Jobs((ADA,), has_gpus=False)).written(TMPFILES).splitlines()

    assert rows == [
        f"d {RUNS} 0755 root root -",
        f"d {RUNS}/20000 0700 20000 20000 30d",
        "e /scratch/ada/runs - - - 30d",
    ]


def test_leases_are_prepared_without_waiting_for_the_driver() -> None:
    """The unit starts in the background, and again until nvidia-smi answers; a second apply changes nothing."""
    jobs = Jobs((ADA,), has_gpus=True)
    first = Recorder(DEBIAN.but(STATES)).play(jobs, stages=STAGES)
    states = {UnitStates.name: ("inactive", f"multi-user.target.wants/{UNIT}")}
    again = Recorder(DEBIAN.but(states), first.disk).play(jobs, stages=STAGES)

    assert first.step("Prepare leases").commands == (f"systemctl restart --no-block {UNIT}",)
    assert "Restart=on-failure" in first.written(f"/etc/systemd/system/{UNIT}")
    assert not any(step.changed for step in again.steps)


def test_a_machine_without_gpus_has_no_unit() -> None:
    """It has the program: a run on CPUs starts through it."""
    played = Recorder(DEBIAN).play(Jobs((ADA,), has_gpus=False), stages=STAGES)

    assert "Prepare leases" not in played.names
    assert "programs.gpus" in played.written("/usr/local/bin/bedplate-gpus")
