"""The file of a study, and what the records of its trials say: `bp search` and the driver of the search read both."""

import json
import math
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from configparser import ConfigParser
from configparser import Error as SyntaxFault
from difflib import get_close_matches
from typing import Any

OPEN, COMPLETE, PRUNED, FAILED, STOPPED = "running", "complete", "pruned", "failed", "stopped"
"""Outcomes of a trial. One that the search has stopped does not count: another one gets its parameters."""
CHANGEABLE = frozenset(("trials", "parallel", "budget", "failures", "time"))
"""What a study may change when its search goes on."""
LISTS = frozenset(("env", "secret", "include"))
"""Keys of [run] with several words."""
PRUNE, STOP = "pruned at step", "the search ended"
"""Why a driver stops a trial: the agent writes that into the cause."""
_TAG = "bedplate."
# Seconds after the end of a run until its last metrics are there, and those for which a missing one is waited for.
_SETTLED, _LATE = 2.0, 30.0
_LONGEST, _MOST_GRID = 4_000, 1_000
_PARAMETER, _NUMBER = "[A-Za-z_][A-Za-z0-9_]{0,99}", r"-?[0-9]+([.][0-9]+)?([eE][-+]?[0-9]+)?"
_COUNT = "[1-9][0-9]{0,2}|1000"
# Each key of [study] with the form of its value, in words, too, and its default: None if it must be there.
_STUDY: Mapping[str, "tuple[str, str, str | None]"] = {
    "name": ("[a-z]([a-z0-9-]{0,22}[a-z0-9])?", "at most 24 of a-z, 0-9 and -, a letter first", None),
    "metric": (r"[A-Za-z0-9_./ -]{1,200}", "the name of a metric that the program logs", None),
    "direction": ("minimize|maximize", "minimize or maximize", None),
    "trials": (_COUNT, "a number from 1 to 1000", None),
    "parallel": ("[1-9]|[1-5][0-9]|6[0-4]|", "a number from 1 to 64", ""),
    "budget": (r"[0-9]{1,6}([.][0-9]{1,2})? (GPU-h|USD)|", "such as 20 GPU-h, or 100 USD", ""),
    "sampler": ("tpe|random|grid", "tpe, random or grid", "tpe"),
    "pruner": ("asha|hyperband|median|none", "asha, hyperband, median or none", "asha"),
    "first-step": ("[1-9][0-9]{0,8}", "the first step at which a trial may be pruned", "1"),
    "reduction": ("[2-9]", "of how many trials one goes on, from 2 to 9", "3"),
    "failures": (_COUNT, "the number of failures in a row that ends the search", "5"),
    "time": ("[1-9][0-9]{0,3}[mhd]|", "the longest time of the search, in m, h or d", ""),
}
# Kinds of parameters: what follows them, and how many words that are.
_KINDS = {"float": "LOW HIGH [STEP]", "log": "LOW HIGH", "int": "LOW HIGH [STEP]", "choice": "VALUE ..."}
_HAS_STEP = frozenset(("float", "int"))
Settings = Mapping[str, Mapping[str, str]]


class StudyError(ValueError):
    """A study file is wrong; its arguments are the faults in words."""


def read_study(text: str, file: str = "the study") -> Settings:
    """Return the sections of a study file, with defaults. Raises StudyError with all faults."""
    parser = ConfigParser(interpolation=None, delimiters=("=",), default_section="")
    # Parameters have names with capitals.
    vars(parser)["optionxform"] = str
    try:
        parser.read_string(text, file)
    except SyntaxFault as error:
        raise StudyError(" ".join(str(error).split())) from None
    # As in a shell, a line goes on after a backslash at its end.
    sections = {name: parser[name].items() for name in parser.sections()}
    found = {name: {key: value.replace("\\\n", " ") for key, value in items} for name, items in sections.items()}
    faults = [f"[{name}] is no section: write [study], [parameters] and [run]" for name in {*found} - {*_SECTIONS}]
    study, parameters, run = (found.get(name, {}) for name in _SECTIONS)
    faults += _study_faults(study)
    if not faults:
        study = {name: study.get(name, default or "") for name, (_, _, default) in _STUDY.items()}
        faults += [fault for name, words in parameters.items() for fault in _parameter_faults(name, words, study)]
        faults += _other_faults(study, parameters, run, text)
    if faults:
        raise StudyError(*faults)
    return {"study": study, "parameters": parameters, "run": run}


def stored_study(text: str) -> Settings:
    """Return the study of a record. Colleagues can change that: raises StudyError if it is none."""
    try:
        document = json.loads(text)
        found = {name: {str(key): str(value) for key, value in document[name].items()} for name in _SECTIONS}
        study, parameters = found["study"], found["parameters"].items()
        faults = [*_study_faults(study), *(fault for pair in parameters for fault in _parameter_faults(*pair, study))]
    except (LookupError, ValueError, TypeError, AttributeError, RecursionError):
        raise StudyError("no study") from None
    if faults:
        raise StudyError("no study")
    return found


_SECTIONS = ("study", "parameters", "run")


def _study_faults(study: Mapping[str, str]) -> Iterator[str]:
    for name in study.keys() - _STUDY.keys():
        near = get_close_matches(name, _STUDY, 1)
        yield f"[study] has no `{name}`: {f'write `{near[0]}`' if near else 'it has ' + ', '.join(_STUDY)}"
    for name, (pattern, form, default) in _STUDY.items():
        value = study.get(name, default)
        if value is None:
            yield f"[study] needs `{name}`: {form}"
        elif not re.fullmatch(pattern, value):
            yield f"[study] `{name} = {value}`: write {form}"


def _parameter_faults(name: str, text: str, study: Mapping[str, str]) -> Iterator[str]:
    kind, *values = text.split() or [""]
    what = f"[parameters] `{name} = {text}`"
    if not re.fullmatch(_PARAMETER, name):
        yield f"{what}: a name has letters, digits and `_`"
    elif kind not in _KINDS:
        yield f"{what}: write {', or '.join(f'{kind} {form}' for kind, form in _KINDS.items())}"
    elif kind == "choice":
        if not values or len({*values}) < len(values):
            yield f"{what}: write each value once"
    elif len(values) not in ({2, 3} if kind in _HAS_STEP else {2}) or not all(_is_number(kind, v) for v in values):
        yield f"{what}: write {kind} {_KINDS[kind]}, as {'whole ' if kind == 'int' else ''}numbers"
    elif not float(values[0]) < float(values[1]) or float([*values, "1"][2]) <= 0:
        yield f"{what}: LOW must be below HIGH, and STEP above 0"
    elif kind == "log" and float(values[0]) <= 0:
        yield f"{what}: LOW must be above 0"
    elif study["sampler"] == "grid" and (kind == "log" or (kind == "float" and len(values) < len("LHS"))):
        yield f"{what}: a grid has no {kind} without steps: write {'choice VALUE ...' if kind == 'log' else 'a STEP'}"


def _is_number(kind: str, text: str) -> bool:
    return bool(re.fullmatch("-?[0-9]{1,15}" if kind == "int" else _NUMBER, text)) and math.isfinite(float(text))


def _other_faults(
    study: Mapping[str, str], parameters: Mapping[str, str], run: Mapping[str, str], text: str
) -> Iterator[str]:
    if len(text.encode()) > _LONGEST:
        yield f"the file has more than {_LONGEST:,} bytes: call a script of your folder"
    if not parameters:
        yield "[parameters] is empty: write `lr = log 1e-5 1e-1`"
    if not run.get("command"):
        yield "[run] needs `command`: write `command = python train.py --lr {lr}`"
    for name in sorted(LISTS | {"command"}):
        if fault := _quote_fault(run.get(name, "")):
            yield f"[run] `{name}`: {fault}: close each quote, and write a backslash before one that is a character"
    if study["budget"].endswith("GPU-h") and run.get("gpus", "0") == "0":
        yield f"[study] `budget = {study['budget']}`: [run] has no `gpus`"
    for word in re.findall(r"(?<!\$)\{([A-Za-z_]\w*)\}", run.get("command", "")):
        if word not in parameters and (near := get_close_matches(word, parameters, 1)):
            yield f"[run] `command`: {{{word}}} is no parameter: write {{{near[0]}}}"
    if study["sampler"] == "grid" and math.prod(map(grid_size, parameters.values())) > _MOST_GRID:
        yield f"the grid has more than {_MOST_GRID:,} trials: write larger steps"


def _quote_fault(text: str) -> str:
    try:
        shlex.split(text)
    except ValueError as error:
        return str(error)
    return ""


def grid_size(text: str) -> int:
    """Return how many values a parameter with steps has."""
    kind, *values = text.split()
    if kind == "choice":
        return len(values)
    low, high, step = (float(value) for value in [*values, "1"][:3])
    # A step of a tenth is no number of binary digits.
    return int((high - low) / step + 1e-9) + 1


def command_of(command: Sequence[str], params: Mapping[str, str]) -> Sequence[str]:
    """Return the words of a command with the values of a trial for the names in braces."""

    def replace(match: "re.Match[str]") -> str:
        return params.get(match[1], match[0])

    return [re.sub(r"\{([A-Za-z_]\w*)\}", replace, word) for word in command]


def value_of(run: Mapping[str, Any], metric: str) -> float:
    """Return the last value of a metric of a run; NaN without one."""
    try:
        return float(run["metrics"].get(metric, math.nan))
    except (ValueError, TypeError):
        return math.nan


def outcome(run: Mapping[str, Any], study: Mapping[str, str], now: float) -> tuple[str, str]:
    """Return what has become of a trial by its record, and why; `now` is the hub's clock."""
    status, cause = run["status"], str(run["tags"].get(f"{_TAG}cause", "the cause is unknown"))
    metric, age = study["metric"], now - (run["end_time"] or 0) / 1000
    # The end is two requests, and the status is the second.
    if run["end_time"] is None or run["tags"].get(f"{_TAG}state") != "ended":
        return OPEN, ""
    if status != "FINISHED":
        reason = cause.partition(": ")[2] if status == "KILLED" else ""
        return next((s for s, text in ((PRUNED, PRUNE), (STOPPED, STOP)) if reason.startswith(text)), FAILED), cause
    if math.isfinite(value_of(run, metric)):
        # Programs log in the background.
        return (COMPLETE, "") if age > _SETTLED else (OPEN, "")
    if metric in run["metrics"]:
        return FAILED, f"its {metric} is {value_of(run, metric)}"
    names = sorted(run["metrics"])
    near = f", the nearest is {near[0]}" if (near := get_close_matches(metric, names, 1)) else ""
    logged = f"it has logged {', '.join(names)[:_LONGEST]}{near}" if names else "it has logged no metric"
    return (FAILED, f"it has not logged {metric}: {logged}") if age > _LATE else (OPEN, "")


def best_of(runs: Sequence[Mapping[str, Any]], study: Mapping[str, str], now: float) -> "Mapping[str, Any] | None":
    """Return the best trial of those that are complete."""
    complete = [run for run in runs if outcome(run, study, now)[0] == COMPLETE]
    sign = -1 if study["direction"] == "maximize" else 1
    return min(complete, key=lambda run: sign * value_of(run, study["metric"]), default=None)


def used_seconds(run: Mapping[str, Any], now: float) -> float:
    """Return for how long a run has had its machine: its agents say so, the last one half a minute ago."""
    tags = run["tags"]
    ran = [float(value) for name, value in tags.items() if name.startswith(f"{_TAG}ran.") and str(value).isdecimal()]
    if run["end_time"] is not None:
        return sum(ran)
    seen = str(tags.get(f"{_TAG}seen", ""))
    is_running = tags.get(f"{_TAG}state") == "running" and seen.isdecimal()
    return sum(ran) + (max(now - int(seen) / 1000, 0.0) if is_running else 0.0)


def used_hours(runs: Sequence[Mapping[str, Any]], now: float) -> float:
    """Return the hours for which runs have had their machines."""
    return sum(used_seconds(run, now) for run in runs) / 3_600
