"""optuna-dashboard over a study, which is built again and again from the records of its trials."""

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import optuna
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState, create_trial
from optuna_dashboard import wsgi

from ..search.driver import params_of
from ..search.edges import Run, StudyHub, StudyRecord
from ..search.optimizer import space_of, typed
from ..study import COMPLETE, OPEN, PRUNED, outcome, value_of

_STATES = {COMPLETE: TrialState.COMPLETE, PRUNED: TrialState.PRUNED, OPEN: TrialState.RUNNING}


class StudyPage:
    """The pages of a study; `app` serves them, and `look` brings them up to date."""

    pause = 30.0

    def __init__(self, facts: Mapping[str, Any], token: str, output: Path, say: Callable[[str], object]) -> None:
        del output, say
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self._name, self._settings = facts["name"], facts["settings"]
        self._record = StudyRecord(StudyHub(facts, token), facts)
        self._ended = dict[str, FrozenTrial]()
        self._space = {key: space_of(text) for key, text in self._settings["parameters"].items()}
        self._pages = self._pages_of([])

    def app(self, environ: Mapping[str, Any], start: Callable[..., object]) -> Iterable[bytes]:
        """Answer a request. The records are the study: its pages cannot change it."""
        if environ["REQUEST_METHOD"] in {"GET", "HEAD"}:
            pages: Iterable[bytes] = self._pages(environ, start)
            return pages
        start("403 Forbidden", [("Content-Type", "application/json")])
        return [b'{"reason": "These pages are for reading: the records of the trials are the study."}']

    def look(self) -> None:
        """Build the study by the record as it is now."""
        runs = self._record.all()
        values = self._record.values([run for run in runs if run["run"] not in self._ended])
        trials = [self._ended.get(run["run"]) or self._trial(run, values.get(run["run"], {})) for run in runs]
        # What has ended is read once: each may have thousands of values.
        pairs = zip(runs, trials, strict=True)
        self._ended = {run["run"]: trial for run, trial in pairs if trial.state is not TrialState.RUNNING}
        self._pages = self._pages_of(trials)

    def _pages_of(self, trials: Iterable[FrozenTrial]) -> Any:  # noqa: ANN401  a WSGI application
        direction = StudyDirection[self._settings["study"]["direction"].upper()]
        storage = optuna.storages.InMemoryStorage()
        study = optuna.create_study(storage=storage, direction=direction, study_name=self._name)
        study.add_trials(trials)
        return wsgi(storage)

    def _trial(self, run: Run, values: Mapping[int, float]) -> FrozenTrial:
        study, facts = self._settings["study"], {"run": str(run["name"])}
        try:
            kind, facts["cause"] = outcome(run, study, self._record.now)
            facts["outcome"] = kind
            start, end = (datetime.fromtimestamp((run[name] or 0) / 1000) for name in ("start_time", "end_time"))  # noqa: DTZ006  as Optuna
            params = {key: typed(text, self._space[key]) for key, text in params_of(run).items()}
            trial = create_trial(
                state=_STATES.get(kind, TrialState.FAIL),
                value=value_of(run, study["metric"]) if kind == COMPLETE else None,
                params=params,
                distributions={key: self._space[key] for key in params},
                intermediate_values={**values},
                user_attrs=facts,
            )
        except Exception:  # noqa: BLE001  colleagues can write records
            return create_trial(state=TrialState.FAIL, user_attrs=facts)
        trial.datetime_start, trial.datetime_complete = start, None if kind == OPEN else end
        return trial
