"""The limits of the hub: what people have spent, warnings, and what must end, with a stand-in of MLflow's calls."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from bedplate.programs.hub.limits import IDLE, SPENT, STOPS, Limits, cost_of, month_of, stop_cause
from bedplate.programs.hub.records import Lines
from bedplate.programs.hub.sweep import Record
from tests.unit.test_hub_sweep import FakeRecord

# 2027-01-15, 8:00.
NOW = 1_800_000_000.0
HOUR, DAY = 3_600, 86_400
PEOPLE = {"20001": "ada", "20002": "bob"}
BUDGETS = {"budgets": {"ada": 100, "bob": 1_000}, "enforce": True}
IDLE_RUNS = {"idle": {"after": 3 * HOUR, "then": "stop"}}


class Sweeps:
    """A volume, and the limits of each sweep."""

    def __init__(self, folder: Path, mlflow: FakeRecord) -> None:
        self.folder, self.mlflow, self.machines = folder, mlflow, list[str]()
        (folder / "tokens").mkdir()

    def add(self, name: str, uid: int = 20001, *, ended: float = 0, hours: float = 1, **tags: str) -> None:
        """Add a run that has had its machine for some hours, at 10 USD an hour."""
        known = {"price": "10", "state": "running", "id": name, f"ran.{0}": str(int(hours * HOUR)), "owner": "bob"}
        self.mlflow.add(name, NOW - 2 * DAY, **{**known, **tags})
        if ended:
            self.mlflow.runs[name] |= {"status": "FINISHED", "end": ended}
        with (self.folder / "tokens/runs").open("a") as file:
            file.write(f"{name} {uid}\n")

    def sweep(self, fleet: Mapping[str, Any], now: float = NOW) -> list[str]:
        """Apply the limits; return the messages."""
        record = Record(str(self.mlflow.server_address))
        limits = Limits(self.folder, fleet, PEOPLE, now)
        limits.apply(record, [*record.search("attributes.status = 'RUNNING'")])
        self.machines = [news["machine"] for _, news in limits.news]
        return [f"{person}: {news['text']}" for person, news in limits.news]

    def lines(self, name: str) -> Mapping[str, str]:
        """Return the lines of a file."""
        return Lines(self.folder / name).read()


@pytest.fixture
def sweeps(tmp_path: Path) -> Iterator[Sweeps]:
    """Yield sweeps of a record without runs."""
    with FakeRecord(tmp_path / "socket") as server:
        yield Sweeps(tmp_path, server)
        server.shutdown()


def test_a_month_begins_in_utc() -> None:
    """Its first second is one of the clock, not of a time zone."""
    assert month_of(NOW) == ("2027-01", 1_798_761_600)
    assert month_of(1_798_761_599) == ("2026-12", 1_796_083_200)


@pytest.mark.parametrize(
    ("tags", "cost"),
    [
        ({"price": "10", "ran.0": "3600"}, 10),
        ({"price": "10", "nodes": "4", "ran.0": "3600", "ran.2": "1800"}, 60),
        # In a queue it costs nothing, however long.
        ({"price": "10"}, 0),
        ({"ran.0": "3600"}, None),
        ({}, 0),
        # A record of a former version.
        ({"price": "10", "seen": "1"}, 240),
        # Nothing costs more than since the beginning of the run.
        ({"price": "10", "ran.0": "999999999"}, 240),
        ({"price": "nan", "ran.0": "3600"}, 0),
        ({"price": "-5", "ran.0": "3600"}, 0),
        ({"price": "inf", "ran.0": "3600"}, 1e6),
    ],
)
def test_a_run_costs_the_time_of_its_machines(tags: Mapping[str, str], cost: float | None) -> None:
    """Price, nodes and the time of each agent. An unknown price is not nothing."""
    run = {"status": "FINISHED", "start": NOW - DAY, "end": NOW, **tags}

    assert cost_of(run, 0, NOW) == cost


def test_of_a_run_over_the_end_of_a_month_its_last_hours_count() -> None:
    """In the new month; the former one had the others."""
    run = {"status": "RUNNING", "start": NOW - DAY, "end": 0, "price": "10", "ran.0": str(DAY)}

    assert cost_of(run, NOW - 2 * HOUR, NOW) == 20


def test_a_person_hears_of_a_budget_once_before_it_is_used_up(sweeps: Sweeps) -> None:
    """At 90 %; then all runs of this person end, also those in a queue, and no others. Tags name no owner."""
    sweeps.add("ended", ended=NOW - HOUR, hours=8)
    sweeps.add("going", hours=0.9)
    sweeps.add("queued", hours=0, state="queued")
    sweeps.add("other", 20002, hours=5, owner="ada")
    assert sweeps.sweep(BUDGETS) == []

    sweeps.mlflow.runs["going"]["tags"]["ran.0"] = str(HOUR)
    text = (
        "ada: 90.00 USD of the budget of ada for 2027-01, 100 USD, are spent: your runs are stopped when it is used up"
    )
    assert sweeps.sweep(BUDGETS) == [text]
    assert sweeps.sweep(BUDGETS, NOW + 60) == []
    assert sweeps.lines(STOPS) == {}
    assert sweeps.lines(SPENT) == {"ada": "90.00 0 100 2027-01", "bob": "50.00 0 1000 2027-01"}

    sweeps.mlflow.runs["going"]["tags"]["ran.0"] = str(2 * HOUR)
    assert sweeps.sweep({**BUDGETS, "enforce": False}, NOW + 120) == []
    assert sweeps.lines(STOPS) == {}
    assert sweeps.sweep(BUDGETS, NOW + 180) == []
    cause = "stopped: the budget of ada for 2027-01, 100 USD, is used up"
    assert sweeps.lines(STOPS) == {"going": cause, "queued": cause}


def test_a_run_counts_once_however_often_it_is_seen(sweeps: Sweeps) -> None:
    """An end that was written late is found within six hours, and one that is taken back counts as it goes on."""
    sweeps.add("ended", ended=NOW - HOUR, hours=2)
    for seconds in range(0, 300, 60):
        sweeps.sweep(BUDGETS, NOW + seconds)
    assert sweeps.lines(SPENT)["ada"].startswith("20.00 0")

    sweeps.add("late", ended=NOW - 10 * HOUR, hours=3)
    sweeps.mlflow.runs["ended"] |= {"status": "RUNNING"}
    sweeps.mlflow.runs["ended"]["tags"]["ran.0"] = str(4 * HOUR)
    sweeps.sweep(BUDGETS, NOW + 600)
    assert sweeps.lines(SPENT)["ada"].startswith("40.00 0")
    sweeps.sweep(BUDGETS, NOW + 7 * HOUR)
    assert sweeps.lines(SPENT)["ada"].startswith("70.00 0")


def test_a_new_month_begins_at_nothing(sweeps: Sweeps) -> None:
    """What ended before does not count any more."""
    sweeps.add("ended", ended=NOW - HOUR, hours=12)
    assert len(sweeps.sweep(BUDGETS)) == 1

    assert sweeps.sweep(BUDGETS, NOW + 20 * DAY) == []
    assert sweeps.lines(SPENT)["ada"] == "0.00 0 100 2027-02"


def test_unknown_prices_are_counted(sweeps: Sweeps) -> None:
    """They are no costs of nothing."""
    sweeps.add("known", hours=1)
    sweeps.add("unknown", hours=1, price="")
    sweeps.add("never-ran", hours=0, price="")

    sweeps.sweep(BUDGETS)

    assert sweeps.lines(SPENT)["ada"] == "10.00 1 100 2027-01"


def _since(hours: float) -> str:
    return str(int((NOW - hours * HOUR) * 1000))


def test_an_idle_run_is_stopped_ten_minutes_after_a_warning(sweeps: Sweeps) -> None:
    """Its person hears of it once. It goes on if it works again, and its agent has the last word."""
    sweeps.add("idle", idle_since=_since(3))
    sweeps.add("busy", idle_since=_since(2.9))
    sweeps.add("queued", idle_since=_since(9), state="queued")
    sweeps.add("forged", idle_since="9" * 400)
    warning = (
        "ada: idle has used no processor and printed nothing for 3:00:00. It is stopped in 10 minutes unless it works"
    )
    assert sweeps.sweep(IDLE_RUNS) == [warning]
    assert sweeps.sweep(IDLE_RUNS, NOW + 300) == []
    assert sweeps.lines(IDLE) == {}

    assert len(sweeps.sweep(IDLE_RUNS, NOW + 600)) == 1  # of the other run
    line = "10800 stopped: it has used no processor and printed nothing for 3:00:00"
    assert sweeps.lines(IDLE) == {"idle": line}
    assert stop_cause({}, sweeps.lines(IDLE), "idle", 10_800).startswith("stopped: it has used no processor")
    assert stop_cause({}, sweeps.lines(IDLE), "idle", 10_799) == ""
    assert stop_cause({}, sweeps.lines(IDLE), "busy", 10_800) == ""

    sweeps.mlflow.runs["idle"]["tags"]["idle_since"] = ""
    sweeps.sweep(IDLE_RUNS, NOW + 660)
    assert sweeps.lines(IDLE) == {}
    sweeps.mlflow.runs["idle"]["tags"]["idle_since"] = _since(1)
    assert warning in sweeps.sweep(IDLE_RUNS, NOW + 5 * HOUR)


def test_a_session_warns_by_the_hub(sweeps: Sweeps) -> None:
    """Its person hears once for how long it is idle; only runs that are sessions have such a warning."""
    warning = "idle for 50 min: no key, request or run, under 5% of a processor. It ends in 10 min, unless it is used"
    sweeps.add("notes", session="jupyter", warning=warning)
    sweeps.add("used", session="ssh", warning="-")
    sweeps.add("run", warning=warning)

    text = "ada: the session notes is idle for 50 min. It ends in 10 min unless it is used or extended"
    assert sweeps.sweep({}) == [text]
    assert sweeps.sweep({}, NOW + 60) == []


@pytest.mark.parametrize("text", ["log in at evil.example", "idle for ever min. It ends in 1e9 min"])
def test_no_message_has_the_text_of_a_tag(text: str, sweeps: Sweeps) -> None:
    """Colleagues can write the tags of a run: only minutes are taken from a warning, and no sentence is a name."""
    sweeps.add("notes", session="ssh", warning=text)
    sweeps.add("named", session="ssh", warning=f"idle for 50 min. It ends in 10 min. {text}", id=text)
    sweeps.add("idle", idle_since=_since(4 * HOUR), id=text, machine=text)

    messages = sweeps.sweep(IDLE_RUNS)

    assert [message.partition(" min")[0] for message in messages if "session" in message] == [
        "ada: the session named is idle for 50"
    ]
    assert text not in str([*messages, *sweeps.machines])


def test_an_idle_run_is_only_reported_by_default(sweeps: Sweeps) -> None:
    """For as long as it is idle."""
    fleet = {"idle": {"after": 600, "then": "report"}}
    sweeps.add("idle", idle_since=_since(5))

    texts = [sweeps.sweep(fleet, NOW + seconds) for seconds in (0, 600, DAY)]

    assert texts == [["ada: idle has used no processor and printed nothing for 0:10:00"], [], []]
    assert sweeps.lines(IDLE) == {}
