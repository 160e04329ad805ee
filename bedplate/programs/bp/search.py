"""`bp search`: from the file of a study to a run that drives it; and what the record has of the study."""

import argparse
import json
import re
import shlex
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile

from ..study import (
    CHANGEABLE,
    STOP,
    Settings,
    StudyError,
    best_of,
    gpu_hours,
    number_of,
    outcome,
    read_study,
    unread,
    used_seconds,
    value_of,
)
from .hub import HELD, MISSING, WRONG, BpError, Hub, say
from .machine import stop_agents
from .records import has_run_ended, moment, table, tagged_runs
from .run import Code
from .run import add_options as add_options_of_run
from .run import code_of, read_options, run_tags, set_place, start_code
from .snapshot import Snapshot, open_shadow

Run = Mapping[str, Any]
# What a trial has of the options of `bp run`: the others are for the search, or for the cluster.
_NOT_OF_TRIALS = (
    *("--nodes", "--image", "--priority", "--array", "--after", "--max-cost", "--name", "--param"),
    *("--notify", "-d", "--dry-run", "-y"),
)
_DEFAULTS: "dict[str, Any]" = {
    "nodes": "1",
    "image": "",
    "priority": "normal",
    "array": "",
    "after": "",
    "max_cost": "",
    "name": "",
}
_DEFAULTS.update({"param": [], "notify": False, "d": False, "dry_run": False, "y": False})
_FLAGS, _LISTS = {"scratch-ok"}, {"env", "secret", "include"}
_START = """import sys
from pathlib import Path
from programs.search.__main__ import main
sys.exit(main(Path()))
"""
_REQUIREMENTS = "programs/search/requirements.txt"
# A driver that fails goes on from the record.
_RESTARTS, _MOST = "3", 64


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `bp search`."""
    parser.usage = "bp search [-d] [--dry-run] [-y] FILE, or bp search show|best|stop NAME"
    parser.add_argument("verb", metavar="FILE | show | best | stop")
    parser.add_argument("word", metavar="NAME", nargs="?", default="")
    for name, text in (("-d", "do not wait for the end"), ("--dry-run", "start nothing"), ("-y", "do not ask")):
        parser.add_argument(name, action="store_true", help=text)


def act_on_search(hub: Hub, options: argparse.Namespace) -> int:
    """Start or stop a search; return the exit code."""
    if options.verb == "stop" and options.word:
        return stop_search(hub, options.word)
    if options.word:
        raise BpError(f"`bp search {options.verb}` takes one file", "write show, best or stop before a NAME", WRONG)
    return start_search(hub, options)


def start_search(hub: Hub, options: argparse.Namespace) -> int:
    """Start the search of a study file, or let it go on; return the exit code of its driver."""
    file = Path(options.verb)
    try:
        settings = read_study(file.read_text(encoding="utf-8"))
    except StudyError as error:
        raise BpError(
            "; ".join(f"{file}: {fault}" for fault in error.args), "`examples/search` has one", WRONG
        ) from None
    except UnicodeDecodeError:
        raise BpError(f"{file} is no text in UTF-8", "write the file of a study", WRONG) from None
    name, trial = f"{hub.settings.person}-{settings['study']['name']}", _trial_options(settings)
    former = [*tagged_runs(hub, search=name, owner=hub.settings.person)]
    _check_former(hub, name, settings, former)
    document = read_options(trial, shlex.split(settings["run"]["command"]))
    fleet = hub.fleet()
    if former and former[0]["tags"].get("bedplate.machine") in fleet["machines"]:
        # Trials may go on there.
        trial.on, trial.group = former[0]["tags"]["bedplate.machine"], ""
    secrets, trial.secret = trial.secret, []
    place = set_place(hub, trial, _ssh_only(fleet, trial), document)
    trial.secret = secrets
    with ExitStack() as stack:
        if former:
            code = _former_code(former[0])
        else:
            shadow = stack.enter_context(open_shadow(hub.folder, Path.cwd()))
            code = code_of(hub, shadow, trial.include, stack)
        tags = {**run_tags(trial, place, document, code), "study": name, "owner": hub.settings.person}
        # The machine is paid for once, by the time of the driver.
        tags["price"] = 0
        facts = {"name": name, "settings": settings, "gpus": document["gpus"], "for": document["for"], "tags": tags}
        facts |= {"parallel": _parallel(settings, place.facts, document)}
        facts |= {"secrets": [variable or word.replace("-", "_") for word, _, variable in _pairs(secrets)]}
        facts |= {"document": {**document, **hub.facts, "tree": code.snapshot.tree, "packs": code.packs}}
        driver = argparse.Namespace(**{**vars(trial), **_driver_options(hub, settings, former, place.facts["price"])})
        driver.on, driver.group, driver.d, driver.dry_run, driver.y = place.name, "", *_flags(options)
        own = read_options(driver, ["python", "search.pyz"])
        own["secrets"] = {} if options.dry_run else {"STUDY_TOKEN": hub.study_token(name)}
        shadow = stack.enter_context(open_shadow(hub.folder, _driver_folder(hub, facts)))
        code_of_driver = code_of(hub, shadow, (), stack)
        new = {**code.new, **code_of_driver.new}
        code_of_driver = Code(code_of_driver.snapshot, code_of_driver.packs, new, stack.close)
        say(*_lines(name, settings, facts, former))
        more = {"search": name, "command": f"bp search {file.name}", "file": json.dumps(settings)}
        more |= {f"trial_{key}": tags[key] for key in ("tree", "base", "size", "left_out", "gpus")}
        return start_code(hub, driver, fleet, {**own, "tags": more}, code_of_driver)


def _trial_options(settings: Settings) -> argparse.Namespace:
    """Return the options of trials, by the section [run]. Raises BpError, or SystemExit after a message."""
    words = list[str]()
    for name, value in settings["run"].items():
        if name in _FLAGS:
            words += [f"--{name}"] if value == "yes" else [f"--{name}={value}"] if value != "no" else []
        elif name != "command":
            values = shlex.split(value) if name in _LISTS else [value]
            words += [f"--{name}={part}" for part in values]
    parser = argparse.ArgumentParser("bp search: [run]", add_help=False, allow_abbrev=False, usage=argparse.SUPPRESS)
    add_options_of_run(parser, _NOT_OF_TRIALS)
    return argparse.Namespace(**{**_DEFAULTS, **vars(parser.parse_args(words))})


def _check_former(hub: Hub, name: str, settings: Settings, former: Sequence[Run]) -> None:
    """Refuse a second driver, and a study that has changed. Raises BpError."""
    for run in former:
        if not has_run_ended(run):
            fix = f"`bp logs -f {run['name']}` follows it, `bp search stop {settings['study']['name']}` ends it"
            raise BpError(f"{run['name']} drives {name}, or its end is not recorded yet", fix, HELD)
    if not former:
        if tagged_runs(hub, study=name):
            raise BpError(f"{name} has trials, but no driver in the record", "name another study", WRONG)
        return
    before = _settings_of(former[0])
    changed = [
        f"[{section}] {key}: {settings[section].get(key) or 'nothing'}, it was {before[section].get(key) or 'nothing'}"
        for section in settings
        for key in {**before[section], **settings[section]}
        if settings[section].get(key) != before[section].get(key) and not (section == "study" and key in CHANGEABLE)
    ]
    if changed:
        fix = f"write it as it was, or name another study; what may change: {', '.join(sorted(CHANGEABLE))}"
        raise BpError(f"{name} goes on with the study of {former[0]['name']}; {'; '.join(changed)}", fix, WRONG)


def _settings_of(run: Run) -> Settings:
    """Return the study of a driver. Raises BpError if its record was changed."""
    try:
        document = json.loads(run["tags"]["bedplate.file"])
        return {section: dict(document[section]) for section in ("study", "parameters", "run")}
    except (LookupError, ValueError, TypeError):
        raise BpError(f"the record of {run['name']} has no study", "name another study") from None


def _ssh_only(fleet: Mapping[str, Any], trial: argparse.Namespace) -> Mapping[str, Any]:
    """Return a fleet without its cluster. Raises BpError if that is wanted."""
    groups = {name: facts for name, facts in fleet["groups"].items() if not facts["kubernetes"]}
    machines = {name: facts for name, facts in fleet["machines"].items() if facts["ssh"]}
    on = [name for name in fleet["machines"] if trial.on in {name, name.partition(".")[0]}]
    if trial.group in fleet["groups"].keys() - groups.keys() or (on and not {*on} & machines.keys()):
        what = f"{trial.on or trial.group} is of the cluster: a search has its trials on one machine for SSH"
        raise BpError(what, f"write `group` or `on`: {', '.join([*groups, *machines]) or 'there is none now'}", WRONG)
    return {**fleet, "groups": groups, "machines": machines}


def _former_code(run: Run) -> Code:
    """Return the code of the trials of a former driver, which the hub has. Raises BpError."""
    tags = {name: str(run["tags"].get(f"bedplate.trial_{name}", "")) for name in ("tree", "base", "size", "left_out")}
    if not re.fullmatch("[0-9a-f]{40} [0-9a-f]{40} [0-9]{1,12}", " ".join((tags["tree"], tags["base"], tags["size"]))):
        raise BpError(f"the record of {run['name']} has no code of its trials", "name another study")
    person, changes = run["tags"]["bedplate.owner"], f"{tags['tree']}-{tags['base']}"
    packs = [f"packs/{person}/{tags['base']}-0.pack"]
    packs += [] if tags["tree"] == tags["base"] else [f"packs/{person}/{changes}.pack"]
    left_out = [tags["left_out"]] if tags["left_out"] else []
    return Code(Snapshot(tags["tree"], 0, int(tags["size"]), left_out, (), "", ""), packs, {})


def _parallel(settings: Settings, facts: Mapping[str, Any], document: Mapping[str, Any]) -> int:
    """Return how many trials run at once: at most as many as the machine has room for."""
    name = "gpus" if document["gpus"] else "cpus"
    fitting = max(int(facts[name] or 1) // max(document[name], 1), 1)
    wanted = int(settings["study"]["parallel"] or fitting)
    return min(wanted, fitting, int(settings["study"]["trials"]), _MOST)


def _pairs(words: Sequence[str]) -> Sequence["tuple[str, str, str]"]:
    return [word.partition("=") for word in words]


def _driver_options(hub: Hub, settings: Settings, former: Sequence[Run], price: "float | None") -> Mapping[str, Any]:
    """Return the options of the driver that are not those of a trial; in US dollars, what former ones have left."""
    budget, _, unit = settings["study"]["budget"].partition(" ")
    most = ""
    if unit == "USD":
        spent = sum(used_seconds(run, hub.now) for run in former) / 3_600 * (price or 0)
        if float(budget) - spent <= 0:
            raise BpError(f"{spent:.2f} of {budget} USD are spent", "write a larger `budget`", WRONG)
        most = f"{float(budget) - spent:.2f}"
    numbers = dict.fromkeys(("gpus", "cpus", "memory"), "0")
    common = {"launch": "program", "restarts": _RESTARTS, "scratch_ok": True, "env": [], "max_cost": most}
    return {**numbers, **common, "for": settings["study"]["time"]}


def _flags(options: argparse.Namespace) -> "tuple[bool, bool, bool]":
    return options.d, options.dry_run, options.y


def _driver_folder(hub: Hub, facts: Mapping[str, Any]) -> Path:
    """Return a folder with the program of a driver, its study, and the environment of that program."""
    folder, own = hub.folder / "search" / str(facts["name"]), Path(sys.argv[0])
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(mode=0o700, parents=True)
    (folder / "study.json").write_text(json.dumps(facts, indent=1), encoding="utf-8")
    with ZipFile(own) as archive, ZipFile(folder / "search.pyz", "w", ZIP_DEFLATED) as program:
        program.writestr("__main__.py", _START)
        for name in archive.namelist():
            if name.startswith("programs/"):
                program.writestr(name, archive.read(name))
        (folder / "requirements.txt").write_bytes(archive.read(_REQUIREMENTS))
    return folder


def _lines(name: str, settings: Settings, facts: Mapping[str, Any], former: Sequence[Run]) -> Iterator[str]:
    """Yield what a search does."""
    study, wanted = settings["study"], settings["study"]["parallel"]
    yield f"{name} {'goes on with its trials, and their code' if former else 'is new'}"
    how = f"by {study['sampler']} with pruner {study['pruner']}: {study['direction']} {study['metric']}"
    yield f"{study['trials']} trials, {facts['parallel']} at a time, {how}"
    if wanted and int(wanted) > facts["parallel"]:
        yield f"note: the machine has no room for {wanted} trials at a time"
    if names := unread(settings):
        braces = ", ".join(f"{{{word}}}" for word in names)
        yield f"note: the command has no {braces}: its program must read $BEDPLATE_PARAMS"


def read_search(hub: Hub, verb: str, word: str) -> "tuple[Mapping[str, Any], Sequence[str]]":
    """Return what the record has of a study, as a document and in lines; of its best trial only. Raises BpError."""
    drivers, trials, now = *_runs_of(hub, word), hub.now
    study, gpus = _settings_of(drivers[0])["study"], int(drivers[0]["tags"].get("bedplate.trial_gpus", 0))
    best = best_of(trials, study, now)
    rows = [_row(run, study, now) for run in trials]
    if verb == "best":
        if best is None:
            raise BpError("no trial is complete yet", f"`bp search show {word}`", MISSING)
        row = _row(best, study, now)
        return row, [
            row["run"],
            f"{study['metric']} {row['value']:.6g}",
            *(f"{k}={v}" for k, v in row["params"].items()),
        ]
    states = [row["state"] for row in rows]
    counts = {state: states.count(state) for state in sorted({*states})}
    document = {"study": study, "driver": drivers[0]["name"], "counts": counts, "trials": rows}
    document |= {"gpu_hours": gpu_hours(trials, gpus, now), "best": best and best["name"]}
    return document, [*_show_lines(document, drivers, study)]


def _show_lines(document: Mapping[str, Any], drivers: Sequence[Run], study: Mapping[str, str]) -> Iterator[str]:
    driver = drivers[0]
    state = driver["tags"].get("bedplate.cause", "has ended") if has_run_ended(driver) else "goes on"
    yield f"driver {driver['name']} on {driver['tags'].get('bedplate.machine', 'unknown')}: {state}"
    yield f"{len(document['trials'])} of {study['trials']} trials: " + ", ".join(
        f"{count} {state}" for state, count in document["counts"].items()
    )
    used = f"{document['gpu_hours']:.2f} GPU-h" if study["budget"].endswith("GPU-h") else ""
    yield from ([f"{used} of {study['budget']} used"] if used else [])
    rows = [("TRIAL", "STATE", "STARTED", study["metric"], "PARAMETERS")]
    for row in document["trials"]:
        params = " ".join(f"{name}={value}" for name, value in row["params"].items())
        star = "*" if row["run"] == document["best"] else ""
        value = "-" if row["value"] is None else f"{row['value']:.6g}{star}"
        rows.append((row["run"], row["state"], moment(row["start_time"]), value, f"{params}  {row['why']}".rstrip()))
    yield from table(rows)


def _row(run: Run, study: Mapping[str, str], now: float) -> Mapping[str, Any]:
    state, why = outcome(run, study, now)
    value = value_of(run, study["metric"])
    params = {name: run["params"].get(name, "") for name in str(run["tags"].get("bedplate.given", "")).split()}
    known = {"value": value if value - value == 0 else None, "start_time": run["start_time"], "params": params}
    return {"run": run["name"], "state": state, "why": why, **known}


def _runs_of(hub: Hub, word: str) -> "tuple[Sequence[Run], Sequence[Run]]":
    """Return the drivers of a study, the newest first, and its trials. Raises BpError if there are none."""
    for name in (f"{hub.settings.person}-{word}", word):
        if drivers := tagged_runs(hub, search=name):
            return drivers, sorted(tagged_runs(hub, study=name), key=lambda run: number_of(run["name"]))
    raise BpError(f"no study is named {word}", "`bp runs --text search` lists the newest drivers", WRONG)


def stop_search(hub: Hub, word: str) -> int:
    """Stop the driver of a study, which stops its trials; without one, the trials."""
    drivers, trials = _runs_of(hub, word)
    driver = drivers[0]
    if driver["tags"].get("bedplate.owner") != hub.settings.person:
        raise BpError(f"{driver['name']} is a run of another person", "ask them", WRONG)
    machine = str(driver["tags"].get("bedplate.machine", ""))
    if not has_run_ended(driver):
        stop_agents(hub, driver["name"], [machine], is_now=False)
        say(f"{driver['name']} is being stopped, and its trials: `bp search show {word}`")
        return 0
    left = [run for run in trials if not has_run_ended(run)]
    for run in left:
        stop_agents(hub, run["name"], [machine], is_now=False, by=f"{driver['tags']['bedplate.search']}: {STOP}")
    say(f"{driver['name']} has ended; {len(left)} trials are being stopped")
    return 0
