"""`bp search`: from the file of a study to a run that drives it; and what the record has of the study."""

import argparse
import json
import shlex
import shutil
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from difflib import get_close_matches
from math import inf
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile

from .. import study as studies
from ..agent.sources import OWN
from ..study import CHANGEABLE, LISTS, STOP, Settings, StudyError
from .environments import choose_environment, environment_line, former_environment
from .hub import HELD, WRONG, BpError, Hub, say
from .places import Place
from .records import find_run, has_run_ended, moment, table, tagged_runs, trials_of
from .run import Code, code_of, read_options, run_tags, set_place, start_code
from .run import add_options as add_options_of_run
from .runs import own_id, pack_paths, snapshot_of, stop_run
from .snapshot import open_shadow

Run = Mapping[str, Any]
# Options of `bp run` that no trial has, with their values: they are for the search.
_OF_SEARCH: "dict[str, Any]" = {"array": "", "after": "", "max_cost": "", "name": "", "in": ""}
_OF_SEARCH.update({"param": [], "notify": False, "d": False, "dry_run": False, "y": False})
# What the driver has instead of that of a trial. After a failure it goes on from the record.
_OF_DRIVER = {
    "nodes": "1",
    "priority": "normal",
    "gpus": "0",
    "cpus": "0",
    "memory": "0",
    "launch": "program",
    "restarts": "3",
    "scratch_ok": True,
}
# Seconds in which a driver stops its trials, and for which a stop waits for that. An account of systemd has two minutes
# at a shutdown.
_GRACE, _PATIENCE = 90, 20
_FLAGS, _MOST = {"scratch-ok": "yes"}, 64
_BUILT = environment_line("bp search", has_option=False)
_PROGRAM, _ENVIRONMENT, _FACTS = "search.pyz", "requirements.txt", "study.json"
_START = "from pathlib import Path\nfrom programs.{}.__main__ import main\nraise SystemExit(main(Path()))\n"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `bp search`."""
    parser.usage = "bp search [-d] [--dry-run] [-y] FILE, or bp search show|best|stop NAME"
    parser.add_argument("verb", metavar="FILE | show | best | stop")
    parser.add_argument("word", metavar="NAME", nargs="?", default="")
    for name, text in (("-d", "do not wait for the end"), ("--dry-run", "start nothing"), ("-y", "do not ask")):
        parser.add_argument(name, action="store_true", help=text)


def act_on_search(hub: Hub, options: argparse.Namespace) -> int:
    """Start or stop a search; return the exit code."""
    if options.verb == "stop":
        return _stop(hub, options.word)
    if options.word:
        raise BpError(f"`bp search {options.verb}` takes one file", "write show, best or stop before a NAME", WRONG)
    return _start(hub, options)


def _start(hub: Hub, options: argparse.Namespace) -> int:
    """Start the search of a study file, or let it go on; return the exit code of its driver."""
    file = Path(options.verb)
    try:
        settings = studies.read_study(file.read_text(encoding="utf-8", errors="replace"), str(file))
    except StudyError as error:
        raise BpError("; ".join(f"{file}: {fault}" for fault in error.args), "", WRONG) from None
    name = f"{hub.settings.person}-{settings['study']['name']}"
    trial, fleet = _trial_options(settings, file), hub.fleet()
    drivers, trials = tagged_runs(hub, search=name), trials_of(hub, name)
    _check_former(name, settings, drivers, has_trials=bool(trials))
    document = read_options(trial, shlex.split(settings["run"]["command"]))
    if trials and drivers and drivers[0]["tags"].get("bedplate.machine") in fleet["machines"]:
        # Trials may go on there.
        trial.on, trial.group = drivers[0]["tags"]["bedplate.machine"], ""
    if trials and not (trial.on or trial.group):
        trial.group = trials[0]["tags"].get("bedplate.group", "")
    # Their values go to the driver.
    secrets, trial.secret = trial.secret, []
    place = set_place(hub, trial, fleet, document)
    trial.secret = secrets
    if place.members:
        fix = "write nodes = 1, or select a `group` of the cluster"
        raise BpError(f"on {place.group or place.name}, a trial has one machine: that of its search", fix, WRONG)
    with ExitStack() as stack:
        if trials:
            code, document["environment_file"] = _former_code(hub, name, drivers, trials)
        else:
            code = code_of(hub, stack.enter_context(open_shadow(hub.folder, Path.cwd())), trial.include, stack)
            document["environment_file"] = choose_environment(hub, trial, Path.cwd(), code.snapshot.left_out)
        tags = {**run_tags(trial, place, document, code), "study": name, "owner": hub.settings.person}
        facts = {"name": name, "settings": settings, "tags": tags, "parallel": _parallel(settings, place, document)}
        facts |= {"secrets": [word.partition("=")[2] or word.replace("-", "_") for word in secrets]}
        facts |= {"document": {**document, **hub.facts, "tree": code.snapshot.tree, "packs": code.packs}}
        own = {"on": place.name, "group": "", "d": options.d, "dry_run": options.dry_run, "y": options.y}
        # An index of packages is for those of the driver, too.
        own["env"] = [word for word in trial.env if word.startswith("UV_")]
        own |= {"max_cost": "", "for": settings["study"]["time"]}
        more: dict[str, Any] = {"environment_file": _ENVIRONMENT, "grace": _GRACE, "built": _BUILT}
        if place.selector:
            group = _group_of_driver(fleet, place)
            own |= {"on": "", "group": group, "image": "" if fleet["groups"][group]["image"] else trial.image}
            more |= {"is_driver": True, "cost": _cost_of_trials(settings, place, document)}
            facts |= _cluster_facts(hub, place, is_asked=not options.dry_run)
        else:
            # The machine is paid for once, by the time of the driver.
            tags["price"], own["max_cost"] = 0, _left(hub, settings, drivers, place.facts["price"])
        driver = argparse.Namespace(**{**vars(trial), **_OF_DRIVER, **own})
        given = {**read_options(driver, ["python", _PROGRAM]), **more}
        given["secrets"] = {} if options.dry_run else {"STUDY_TOKEN": hub.study_token(name)}
        given["tags"] = {"search": name, "command": f"bp search {file.name}", "file": json.dumps(settings)}
        folder = shipped(hub.folder / "search" / name, "search", _FACTS, facts)
        program = code_of(hub, stack.enter_context(open_shadow(hub.folder, folder)), (), stack)
        say(*_lines(facts, place, more.get("cost", 0), is_known=bool(trials)))
        both = Code(program.snapshot, program.packs, {**code.new, **program.new}, stack.close)
        return start_code(hub, driver, fleet, given, both)


def _former_code(hub: Hub, name: str, drivers: Sequence[Run], trials: Sequence[Run]) -> "tuple[Code, str]":
    """Return the code and the environment of the trials that a study has; print them. Raises BpError.

    Colleagues can write records of trials with code of theirs. So the file of the first start comes first, and without
    one, as on another laptop, the person must have a driver in the record.
    """
    run, source = trials[0], "the record"
    try:
        facts = json.loads((hub.folder / "search" / name / _FACTS).read_text(encoding="utf-8"))
        tags = {f"bedplate.{key}": "" if value is None else value for key, value in facts["tags"].items()}
        run, environment, source = {**run, "tags": tags}, str(facts["document"]["environment_file"]), "this laptop"
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        if not any(driver["tags"].get("bedplate.owner") == hub.settings.person for driver in drivers):
            what = f"the record has trials of {name}, and no search of yours that has started them"
            raise BpError(what, "name another study", WRONG) from None
        environment = former_environment(hub, run)
    code = Code(snapshot_of(run), pack_paths(run), {})
    built = environment_line(environment).partition(";")[0] if environment else "no environment"
    say(f"code of the trials, by {source}: {code.snapshot.tree}; {built}")
    return code, environment


def _trial_options(settings: Settings, file: Path) -> argparse.Namespace:
    """Return the options of trials, by the section [run]. Raises BpError, or SystemExit after a message."""
    words = list[str]()
    for name, value in settings["run"].items():
        if _FLAGS.get(name) == value:
            words += [f"--{name}"]
        elif name != "command":
            words += [f"--{name}={part}" for part in (shlex.split(value) if name in LISTS else [value])]
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, usage=argparse.SUPPRESS)
    parser.prog = f"bp search: {file}: [run]"
    names = [f"-{name}" if len(name) == 1 else f"--{name.replace('_', '-')}" for name in _OF_SEARCH]
    add_options_of_run(parser, names)
    known = [name.replace("_", "-") for name in vars(parser.parse_args([]))]
    for name in settings["run"].keys() - {"command", *known}:
        fix = f"write `{(get_close_matches(name, known, 1) or [', '.join(known)])[0]}`"
        raise BpError(f"{file}: [run] has no `{name}`", fix, WRONG)
    return argparse.Namespace(**{**_OF_SEARCH, **vars(parser.parse_args(words))})


def _check_former(name: str, settings: Settings, drivers: Sequence[Run], *, has_trials: bool) -> None:
    """Refuse a second driver, and a study that has changed since its first trial. Raises BpError."""
    for run in drivers:
        if not has_run_ended(run):
            fix = f"`bp logs -f {run['name']}` follows it, `bp search stop {settings['study']['name']}` ends it"
            raise BpError(f"{run['name']} drives {name}, or its end is not recorded yet", fix, HELD)
    former = _settings_of(drivers[0]) if drivers and has_trials else settings
    pairs = {(part, key) for study in (former, settings) for part in study for key in study[part]}
    changed = [
        f"[{part}] {key}: {settings[part].get(key) or 'nothing'}, it was {former[part].get(key) or 'nothing'}"
        for part, key in sorted(pairs - {("study", key) for key in CHANGEABLE})
        if settings[part].get(key) != former[part].get(key)
    ]
    if changed:
        fix = f"write it as it was, or name another study; what may change: {', '.join(sorted(CHANGEABLE))}"
        raise BpError(f"{name} has trials of another study; {'; '.join(changed)}", fix, WRONG)


def _settings_of(run: Run) -> Settings:
    """Return the study of a driver. Raises BpError if its record was changed."""
    try:
        return studies.stored_study(str(run["tags"].get("bedplate.file", "")))
    except StudyError:
        raise BpError(f"the record of {run['name']} has no study", "name another study") from None


def _group_of_driver(fleet: Mapping[str, Any], place: Place) -> str:
    """Return the group of the cluster for the driver: the cheapest without GPUs, or that of the trials at a site.

    It has an image of its own, as that of the trials may be for another architecture.
    """
    groups = {name: facts for name, facts in fleet["groups"].items() if facts["kubernetes"] and facts["jobs"]}
    fitting = [name for name, facts in groups.items() if facts["max"] and facts["image"]]
    fitting = [place.group] if place.facts["site"] else [name for name in fitting if not groups[name]["site"]]
    return min(fitting, key=lambda name: (groups[name]["gpus"] or 0, groups[name]["price"] or 0), default=place.group)


def _cost_of_trials(settings: Settings, place: Place, document: Mapping[str, Any]) -> float:
    """Return what the trials in the cluster may cost. Raises BpError if a budget needs an unknown price."""
    budget, _, unit = settings["study"]["budget"].partition(" ")
    price, nodes = place.facts["price"] or 0.0, document["nodes"]
    if unit == "USD" and not price:
        what = f"the price of {place.group} is unknown, so a budget in USD cannot be kept"
        raise BpError(what, "write `budget` in GPU-h, or leave it out", WRONG)
    most = int(settings["study"]["trials"]) * document["for"] / 3_600 * nodes * price
    unit_price = {"USD": 1.0, "GPU-h": price / max(document["gpus"], 1)}.get(unit, 0.0)
    return float(min(most, float(budget) * unit_price) if unit_price else most)


def _cluster_facts(hub: Hub, place: Place, *, is_asked: bool) -> Mapping[str, Any]:
    """Return what a driver needs in the cluster; its pod has address and token. Raises BpError."""
    # Slow to import, and of no use on machines.
    from .cluster import api_of  # noqa: PLC0415

    claims = api_of(hub.settings).claims(place.facts["site"]) if is_asked else {}
    return {"place": asdict(place), "claims": claims, "cluster": {**hub.settings.cluster, "token": ""}}


def _parallel(settings: Settings, place: Place, document: Mapping[str, Any]) -> int:
    """Return how many trials run at once: by default as many as fit on a machine, and at most those of its group."""
    fitting, most, _ = _room(place, document)
    wanted = int(settings["study"]["parallel"] or fitting)
    return min(wanted, most, int(settings["study"]["trials"]), _MOST)


def _room(place: Place, document: Mapping[str, Any]) -> "tuple[int, int, str]":
    """Return how many trials fit on a machine, and on all of a place at once; and by which resource, in words."""
    name, unit = ("gpus", "GPUs") if document["gpus"] else ("cpus", "CPUs")
    each, nodes = max(int(document[name]), 1), document["nodes"]
    fitting = max(int(place.facts[name] or 1) // each, 1)
    why = f"each takes {each} of {place.facts[name] or 'unknown'} {unit}"
    if not place.selector or "kubernetes.io/hostname" in place.selector:
        return fitting, fitting, why
    most = place.facts["max"]
    return fitting, fitting * most // nodes, f"{why} of a machine, on {nodes} of at most {most} machines"


def _left(hub: Hub, settings: Settings, drivers: Sequence[Run], price: "float | None") -> str:
    """Return the US dollars that former drivers have left; nothing without such a budget."""
    budget, _, unit = settings["study"]["budget"].partition(" ")
    spent = sum(studies.used_seconds(run, hub.now) for run in drivers) / 3_600 * (price or 0)
    if unit == "USD" and float(budget) <= spent:
        raise BpError(f"{spent:.2f} of {budget} USD are spent", "write a larger `budget`", WRONG)
    return f"{float(budget) - spent:.2f}" if unit == "USD" else ""


def shipped(folder: Path, name: str, facts_file: str, facts: Mapping[str, Any]) -> Path:
    """Fill a folder with a program of bp's own archive, the facts for it, and the environment of that program."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(mode=0o700, parents=True)
    (folder / facts_file).write_text(json.dumps(facts), encoding="utf-8")
    with ZipFile(sys.argv[0]) as own, ZipFile(folder / f"{name}.pyz", "w", ZIP_DEFLATED) as program:
        program.writestr("__main__.py", _START.format(name))
        for file in own.namelist():
            if file.startswith("programs/") and not file.endswith(_ENVIRONMENT):
                program.writestr(file, own.read(file))
        packages = own.read(f"programs/{name}/{_ENVIRONMENT}")
        (folder / _ENVIRONMENT).write_bytes(f"{OWN}bp {name}\n".encode() + packages)
    return folder


def _lines(facts: Mapping[str, Any], place: Place, most: float, *, is_known: bool) -> Iterator[str]:
    """Yield what a search does."""
    settings, study = facts["settings"], facts["settings"]["study"]
    yield f"{facts['name']} {'goes on with its trials, and their code' if is_known else 'is new'}"
    how = f"by {study['sampler']} with pruner {study['pruner']}: {study['direction']} {study['metric']}"
    yield f"{study['trials']} trials, {facts['parallel']} at a time, {how}"
    if "place" in facts:
        price = place.facts["price"]
        hour = (price or 0) * facts["document"]["nodes"]
        cost = f"{hour:.2f} USD an hour each, at most {most:.2f} USD" if price else "without a known price"
        yield f"trials on {place.name} in the cluster, {cost}"
    _, room, why = _room(place, facts["document"])
    if int(study["parallel"] or 0) > room:
        yield f"note: {place.name} has no room for {study['parallel']} trials at a time: {why}; the search itself none"
    if names := [f"{{{name}}}" for name in settings["parameters"] if f"{{{name}}}" not in settings["run"]["command"]]:
        yield f"note: the command has no {', '.join(names)}: its program must read $BEDPLATE_PARAMS"


def read_search(hub: Hub, verb: str, word: str) -> "tuple[Mapping[str, Any], Sequence[str]]":
    """Return what the record has of a study, as a document and in lines; of its best trial only. Raises BpError."""
    drivers, trials = _runs_of(hub, word)
    settings, is_over = _settings_of(drivers[0]), has_run_ended(drivers[0])
    # Nobody waits for late values any more. The clock here may be a second behind that of the driver.
    now = inf if is_over else hub.now
    study, best = settings["study"], studies.best_of(trials, settings["study"], now)
    rows = [_row(run, study, now) for run in (trials if verb == "show" else filter(None, [best]))]
    if verb == "best" and not rows:
        raise BpError("no trial is complete yet", f"`bp search show {word}`")
    states = [row["state"] for row in rows]
    gpus = int(settings["run"].get("gpus", 0)) * int(settings["run"].get("nodes", 1))
    used = studies.used_hours(trials, hub.now) * gpus
    facts = {"study": study, "driver": drivers[0]["name"], "gpu_hours": used, "trials": rows}
    lines = [("TRIAL", "STATE", "STARTED", study["metric"], "PARAMETERS")]
    for row in rows:
        words = " ".join(f"{name}={value}" for name, value in row["params"].items())
        mark = "*" if best and row["run"] == best["name"] else ""
        times = (row["state"], moment(row["start_time"]))
        lines.append((row["run"], *times, f"{row['value']}{mark}", f"{words}  {row['why']}".rstrip()))
    if verb == "best":
        return rows[0], [*table(lines)]
    state = drivers[0]["tags"].get("bedplate.cause", "has ended") if is_over else "goes on"
    counts = ", ".join(f"{states.count(state)} {state}" for state in sorted({*states}))
    head = [f"driver {drivers[0]['name']} on {drivers[0]['tags'].get('bedplate.machine', 'unknown')}: {state}"]
    head += [f"{len(rows)} of {study['trials']} trials{counts and f': {counts}'}; {used:.2f} GPU-h"]
    return facts, [*head, *table(lines)]


def study_of(hub: Hub, word: str) -> "tuple[str, Settings]":
    """Return the name of a study with its person, and its settings. Raises BpError."""
    (driver, *_), _ = _runs_of(hub, word)
    return str(driver["tags"]["bedplate.search"]), _settings_of(driver)


def _row(run: Run, study: Mapping[str, str], now: float) -> Mapping[str, Any]:
    state, why = studies.outcome(run, study, now)
    params = {name: run["params"].get(name, "") for name in str(run["tags"].get("bedplate.given", "")).split()}
    known = {"value": run["metrics"].get(study["metric"]), "start_time": run["start_time"], "params": params}
    return {"run": run["name"], "state": state, "why": why, **known}


def _runs_of(hub: Hub, word: str) -> "tuple[Sequence[Run], Sequence[Run]]":
    """Return the drivers of a study, the newest first, and its trials. Raises BpError if there are none."""
    if not word:
        raise BpError("this takes the NAME of a study", "`bp runs --text search` lists the newest drivers", WRONG)
    for name in (f"{hub.settings.person}-{word}", word):
        if drivers := tagged_runs(hub, search=name):
            return drivers, trials_of(hub, name)
    raise BpError(f"no study is named {word}", "`bp runs --text search` lists the newest drivers", WRONG)


def _stop(hub: Hub, word: str) -> int:
    """Stop the driver of a study, which stops its trials, and those that are left at its end."""
    (driver, *_), trials = _runs_of(hub, word)
    # Colleagues can write names, and a shell gets them: what is no id is refused.
    own, study = own_id(hub, driver), driver["tags"].get("bedplate.search", "")
    newest, end = driver, time.monotonic() + _PATIENCE
    if not has_run_ended(driver):
        stop_run(hub, driver, own)
        say(f"{driver['name']} is being stopped")
        while not has_run_ended(newest := find_run(hub, driver["run"])) and time.monotonic() < end:
            time.sleep(0.5)
        _, trials = _runs_of(hub, word)
    # One that waited in the queue or for its environment has stopped none.
    for run in trials if has_run_ended(newest) else ():
        if not has_run_ended(run):
            # Where the driver was.
            stop_run(hub, {**driver, "run": run["run"]}, run["name"], f"{study}: {STOP}")
            say(f"{run['name']} is being stopped")
    say(f"`bp search show {word}` shows what is left")
    return 0
