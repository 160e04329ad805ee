"""Optuna: which parameters the next trial has, and which trial is pruned. Its study is built anew from the record."""

import itertools
import math
import warnings
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from typing import Any
from zlib import crc32

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.study import StudyDirection
from optuna.trial import Trial, TrialState, create_trial

from ..study import COMPLETE, PRUNED, STOPPED, Settings, grid_size
from .edges import Params

_STATES = {COMPLETE: TrialState.COMPLETE, PRUNED: TrialState.PRUNED}


class Optimizer:
    """Optuna's study in memory, whose trials have the numbers of those in the record.

    `count` is how many the record has: a sampler that starts again must not repeat its random numbers.
    """

    def __init__(self, settings: Settings, name: str, count: int) -> None:
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        study, self._space = settings["study"], {key: space_of(text) for key, text in settings["parameters"].items()}
        self._is_grid, seed = study["sampler"] == "grid", crc32(f"{name}/{count}".encode())
        with warnings.catch_warnings():
            # Of options that are experimental.
            warnings.simplefilter("ignore")
            tpe = optuna.samplers.TPESampler(seed=seed, constant_liar=True)
            random = optuna.samplers.RandomSampler(seed=seed)
            self._study = optuna.create_study(
                direction=StudyDirection[study["direction"].upper()],
                sampler=tpe if study["sampler"] == "tpe" else random,
                pruner=_pruner(study["pruner"], int(study["first-step"]), int(study["reduction"])),
                study_name=name,
            )
        self._trials, self._params = list[Trial | None](), list[Params]()
        self._again = list[Params]()

    def add(self, params: Params) -> bool:
        """Add a trial of the record, which runs until `tell`; return whether its parameters are of the study.

        Colleagues can change records: a wrong one has failed.
        """
        if params in self._again:
            self._again.remove(params)
        self._params.append(params)
        try:
            values = {key: typed(text, self._space[key]) for key, text in params.items()}
            trial = create_trial(state=TrialState.WAITING, params=values, distributions=self._space)
            trial.state, trial.datetime_start, trial.datetime_complete = TrialState.RUNNING, datetime.now(), None  # noqa: DTZ005  as Optuna
            self._study.add_trial(trial)
        except (LookupError, ValueError, OverflowError):
            self._study.add_trial(create_trial(state=TrialState.FAIL))
            self._trials.append(None)
        else:
            self._trials.append(Trial(self._study, len(self._trials)))
        return self._trials[-1] is not None

    def ask(self) -> Params | None:
        """Add the next trial, and return its parameters; None if a grid has no more."""
        params = next(iter(self._again), None)
        if params is None and self._is_grid:
            params = next((params for params in _grid(self._space) if params not in self._params), None)
        if params is not None or self._is_grid:
            if params is not None:
                self.add(params)
            return params
        trial = self._study.ask(self._space)
        self._trials.append(trial)
        self._params.append({key: str(value) for key, value in trial.params.items()})
        return self._params[-1]

    def report(self, number: int, step: int, value: float) -> bool:
        """Report a value of a trial; return whether the trial should be pruned."""
        trial = self._trials[number]
        if trial is None or step < 0:
            return False
        trial.report(value, step)
        return trial.should_prune()

    def tell(self, number: int, state: str, value: float) -> None:
        """Tell the end of a trial. The parameters of one that was stopped are asked again."""
        if state == STOPPED and self._trials[number]:
            self._again.append(self._params[number])
        with suppress(ValueError):
            if self._trials[number]:
                is_complete = state == COMPLETE and math.isfinite(value)
                self._study.tell(number, value if is_complete else None, _STATES.get(state, TrialState.FAIL))


def space_of(text: str) -> BaseDistribution:
    """Return what Optuna calls a parameter of a study."""
    kind, *values = text.split()
    if kind == "choice":
        return CategoricalDistribution(values)
    if kind == "int":
        first, last, by = (int(value) for value in [*values, "1"][:3])
        return IntDistribution(first, last - (last - first) % by, step=by)
    low, high, *step = (float(value) for value in values)
    if step:
        high = round(low + (grid_size(text) - 1) * step[0], 12)
    return FloatDistribution(low, high, log=kind == "log", step=step[0] if step else None)


def typed(text: str, space: BaseDistribution) -> Any:  # noqa: ANN401  of the kind of the parameter
    """Return a value of a parameter. Raises ValueError, unless `ask` writes it as this text."""
    if isinstance(space, CategoricalDistribution):
        return text
    value = int(text) if isinstance(space, IntDistribution) else float(text)
    # The program gets the text, and Python reads more texts as numbers than `ask` writes.
    if str(value) != text:
        raise ValueError(text)
    return value


def _grid(spaces: Mapping[str, BaseDistribution]) -> Iterator[Params]:
    for values in itertools.product(*map(_values, spaces.values())):
        yield dict(zip(spaces, values, strict=True))


def _values(space: Any) -> list[str]:  # noqa: ANN401  a distribution with steps, or of choices
    if isinstance(space, CategoricalDistribution):
        return [str(choice) for choice in space.choices]
    count = round((space.high - space.low) / space.step) + 1
    # 0.1 * 3 is 0.30000000000000004.
    return [str(type(space.low)(round(space.low + at * space.step, 12))) for at in range(count)]


def _pruner(name: str, first: int, reduction: int) -> optuna.pruners.BasePruner:
    if name == "asha":
        return optuna.pruners.SuccessiveHalvingPruner(min_resource=first, reduction_factor=reduction)
    if name == "hyperband":
        return optuna.pruners.HyperbandPruner(min_resource=first, reduction_factor=reduction)
    return optuna.pruners.MedianPruner(n_warmup_steps=first) if name == "median" else optuna.pruners.NopPruner()
