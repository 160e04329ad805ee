"""What a search does next, by the records of its trials and the time. The record and the machine are given."""

import json
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor, Future, wait
from typing import Any

from ..study import FAILED, OPEN, PRUNE, STOP, STOPPED, best_of, outcome, used_hours, value_of
from .edges import FULL, Params, Run, StudyMachine, StudyRecord
from .optimizer import Optimizer

# Seconds that a trial may go on once it is stopped, or until the next look; and those that are too few for a new one.
_GRACE, _LEAST = 60.0, 120.0


class Driver:
    """A search. `start` takes up what the record has; each `step` after that returns whether the search goes on."""

    def __init__(
        self,
        facts: Mapping[str, Any],
        record: StudyRecord,
        machine: StudyMachine,
        pool: Callable[[], Executor],
        say: Callable[[str], object],
    ) -> None:
        name, settings, trial = facts["name"], facts["settings"], facts["document"]
        self._study, self._seconds, nodes = settings["study"], float(trial["for"]), int(trial["nodes"])
        self._name, self._settings, self._parallel, self._say = name, settings, int(facts["parallel"]), say
        self._record, self._machine = record, machine
        budget, _, unit = self._study["budget"].partition(" ")
        # What a trial uses in an hour. On a machine it costs nothing: US dollars are the time of the driver.
        rates = {"GPU-h": float(trial["gpus"]), "USD": float(facts["tags"]["price"] or 0)}
        self._budget, self._unit, self._rate = float(budget or "inf"), unit, nodes * rates.get(unit, 0.0)
        self._runs, self._open, self._unstarted = list[Run](), dict[int, Run](), dict[int, Run]()
        # Starts and stops that go on, while the search looks at the other trials. No stop waits behind a start.
        self._starters, self._stoppers = pool(), pool()
        self._starts, self._stops = dict[int, Future[str]](), dict[int, Future[str]]()
        self._reported, self._stopping, self._failures = dict[int, int](), set[int](), list[str]()
        self._reasons, self._errors = dict[int, str](), dict[int, str]()
        self._final, self.cause, self.ended = "", "", 0
        """Why no trial starts any more, and how many trials have ended."""

    def start(self) -> None:
        """Build Optuna's study by the record, and start what the record has, but maybe no machine."""
        self._runs = [*self._record.all()]
        self._optimizer = Optimizer(self._settings, self._name, len(self._runs))
        values, refused = self._record.values(self._runs), set[int]()
        for number, run in enumerate(self._runs):
            refused |= set() if self._optimizer.add(params_of(run)) else {number}
            # What a former driver has decided stays: only new values prune.
            self._take(number, run, values.get(run["run"], {}), is_new=False)
        self._failures.clear()
        self._say(self.progress)
        unstarted = {number: run for number, run in self._open.items() if _may_lack_start(run)}
        for number in refused & unstarted.keys():
            self._record.end(unstarted.pop(number), "its parameters are not of this study: its record was changed")
        self._launch(unstarted)

    def step(self) -> bool:
        """Look at all trials that go on, stop some, and start others; return whether the search goes on."""
        self._take_starts()
        self._machine.check(
            self._open[number] for number in self._open.keys() - self._unstarted.keys() - self._starts.keys()
        )
        newest = self._record.look(self._open)
        values = self._record.values([*newest.values()])
        for number, run in newest.items():
            self._take(number, run, values.get(run["run"], {}), is_new=True)
        self._stop(self._reasons)
        self._check()
        new = {number: self._open[number] for number in self._unstarted.keys() & self._open.keys() - self._stopping}
        while not self.cause and len(self._open) < self._parallel and (params := self._optimizer.ask()) is not None:
            number = len(self._runs)
            new[number] = self._open[number] = self._record.create(number, params)
            self._runs.append(new[number])
            self._check()
        self._launch(new)
        if not self._open and not self.cause:
            self.cause = "the grid has no more trials"
        return bool(self._open)

    def stop(self, reason: str) -> None:
        """Stop all trials that go on, and wait until that is done."""
        wait(self._starts.values())
        self._take_starts()
        self._stop(dict.fromkeys(self._open, reason))
        wait(self._stops.values())
        self._stop({})

    def _stop(self, reasons: Mapping[int, str]) -> None:
        """Begin to stop trials, each for a reason. What has failed is left for the next call."""
        for number in [number for number, stop in self._stops.items() if stop.done()]:
            error = self._stops.pop(number).result()
            self._stopping -= {number} if error else set()
            self._note(number, error)
        # One whose program has ended has nothing to stop.
        going = {number for number, run in self._open.items() if run["end_time"] is None}
        for number in sorted(reasons.keys() & going - self._stopping - self._starts.keys()):
            self._stopping.add(number)
            self._stops[number] = self._stoppers.submit(self._machine.stop, self._open[number], reasons[number])

    def _note(self, number: int, error: str) -> None:
        """Print why a trial is not stopped or started, once."""
        if error and error != self._errors.get(number):
            self._say(f"{self._runs[number]['name']}: {error}")
        self._errors[number] = error

    @property
    def progress(self) -> str:
        """How far the search is."""
        return f"{self._name}: {self.ended} of {self._study['trials']} trials have ended, {len(self._open)} go on"

    def summary(self) -> Iterator[str]:
        """Yield how the search has ended."""
        yield f"{self._name} ends: {self.cause}"
        yield f"best: {self._line(self.best)}" if self.best else "no trial is complete"

    @property
    def age(self) -> float:
        """The seconds since the youngest trial was made that goes on."""
        starts = [(run["start_time"] or 0) / 1000 for run in self._open.values()]
        return self._record.now - max(starts) if starts else 0.0

    @property
    def best(self) -> Run | None:
        """The best trial of those that are complete."""
        return best_of(self._runs, self._study, self._record.now)

    def _take(self, number: int, run: Run, values: Mapping[int, float], *, is_new: bool) -> None:
        """Take the record of a trial: its new values, and its end."""
        last = self._reported.get(number, -1)
        for step in sorted(step for step in values if step > last):
            self._reported[number] = step
            if self._optimizer.report(number, step, values[step]) and is_new:
                self._reasons.setdefault(number, f"{PRUNE} {step}")
        self._runs[number] = run
        state, why = outcome(run, self._study, self._record.now)
        if state == OPEN:
            self._open[number] = run
            return
        self._open.pop(number, None)
        self._optimizer.tell(number, state, value_of(run, self._study["metric"]))
        self.ended += state != STOPPED
        self._failures = [*self._failures, why] if state == FAILED else []
        if is_new:
            self._say(f"{state}: {self._line(run)}{f': {why}' if why else ''}")

    def _check(self) -> None:
        """Note why no trial starts any more, and stop those that go on if the budget is used up."""
        count, most = self.ended + len(self._open), int(self._study["trials"])
        spent = self._spent()
        running = [run for number, run in self._open.items() if number not in self._stopping]
        if spent + len(running) * self._rate * _GRACE / 3_600 >= self._budget:
            used = f"{spent:.2f} {self._unit}"
            self._final = self._final or f"the budget of {self._study['budget']} is used up, with {used}"
            self._stop(dict.fromkeys(self._open, f"{STOP}: {self._final}"))
        elif len(self._failures) >= int(self._study["failures"]):
            last = f"the last one: {self._failures[-1]}"
            self._final = self._final or f"{len(self._failures)} trials in a row have failed, {last}"
        if self._final:
            self.cause = self._final
        elif count >= most:
            self.cause = f"all {most} trials have ended"
        elif spent + (len(running) + 1) * self._rate * _LEAST / 3_600 >= self._budget:
            self.cause = f"{spent:.2f} {self._unit} of the budget of {self._study['budget']} are used"
        else:
            self.cause = ""

    def _spent(self) -> float:
        """Return what trials have used of the budget."""
        return used_hours(self._runs, self._record.now) * self._rate

    def _launch(self, runs: Mapping[int, Run]) -> None:
        """Begin to start trials."""
        left = (self._budget - self._spent()) * 3_600 / self._rate if self._rate else self._seconds
        seconds = max(min(self._seconds, left), _LEAST)
        self._unstarted = {}
        for number, run in runs.items():
            self._starts[number] = self._starters.submit(self._machine.start, run, params_of(run), seconds)

    def _take_starts(self) -> None:
        """Take the starts that are done: a trial that cannot start has failed, or waits for the next look."""
        for number in [number for number, start in self._starts.items() if start.done()]:
            error = self._starts.pop(number).result()
            if FULL in error:
                self._unstarted[number] = self._runs[number]
                self._note(number, error)
            elif error:
                self._record.end(self._runs[number], f"it did not start: {error}")

    def _line(self, run: Run) -> str:
        words = " ".join(f"{name}={value}" for name, value in params_of(run).items())
        return f"{run['name']}  {self._study['metric']} {value_of(run, self._study['metric']):.6g}  {words}"


def params_of(run: Run) -> Params:
    """Return the parameters of a trial; none if its record was changed."""
    try:
        return {str(key): str(value) for key, value in json.loads(run["tags"]["bedplate.trial"]).items()}
    except (LookupError, ValueError, TypeError, AttributeError, RecursionError):
        return {}


def _may_lack_start(run: Run) -> bool:
    return run["tags"].get("bedplate.state") in {"sent", "queued"}
