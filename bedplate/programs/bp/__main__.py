"""The command `bp`: its words, its output and its exit codes."""

import argparse
import json
import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import Any

from . import records
from .hub import MISSING, PARTLY, WRONG, BpError, Hub, PrintedError, answer_lines, load_settings, printable

_STARTS = {"run", "again"}
# What `again` takes from the record.
_REPEATED = [
    "--in",
    "--gpus",
    "--nodes",
    "--cpus",
    "--memory",
    "--launch",
    "--param",
    "--include",
    "--priority",
    "--array",
    "--restarts",
    "--scratch-ok",
]
_INTERRUPTED, _MOST, _BEFORE_START = 130, 1_000, 240
# Commands that do more than to print an answer, by the function of their module.
_ACTIONS = {"session": "act_on_session", "board": "start_board", "search": "act_on_search", "top": "watch_top"}
# Seconds for the answer of Grafana.
_HEALTH = 5.0
_JSON = "one JSON document, for programs"


def main(words: Sequence[str], program: Path) -> int:
    """Run a command of the bp at a path; return the exit code, which is that of the program after `run`."""
    own = _BEFORE_START if words and words[0] in _STARTS else 0
    try:
        return _run(*_options(words), program)
    except SystemExit as error:
        # argparse has said why.
        return own + int(error.code or -own)
    except BpError as error:
        first = "" if isinstance(error, PrintedError) else "error: "
        for label, text in ((first, str(error)), ("  fix  ", error.fix)):
            if text:
                sys.stderr.write(f"{label}{printable(text)}\n")
        return own + error.code
    except KeyboardInterrupt:
        return _INTERRUPTED
    except OSError as error:
        _close_output()
        place = f"{error.filename}: " if error.filename else ""
        sys.stderr.write(printable(f"error: {place}{error.strerror or error}") + "\n")
        return own + MISSING


def _options(words: Sequence[str]) -> tuple[argparse.Namespace, Sequence[str]]:
    """Return the options of a command of bp, and the words after `--`."""
    end = words.index("--") if "--" in words else len(words)
    words, program = words[:end], words[end + 1 :]
    parser = argparse.ArgumentParser("bp", description="Your runs, and the pages of the hub.", allow_abbrev=False)
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    run = commands.add_parser("run", help="run a command with the files of this folder", allow_abbrev=False)
    run.usage = "bp run [options] -- COMMAND ..., such as `bp run -- python train.py`"
    runs = commands.add_parser("runs", help="list the newest runs", allow_abbrev=False)
    runs.add_argument("--owner", metavar="NAME", default="", help="of this person; default: yours")
    runs.add_argument("--state", choices=records.STATES, default="", help="in this state")
    runs.add_argument("--group", metavar="G", default="", help="of this group")
    runs.add_argument("--text", metavar="TEXT", default="", help="with this in name, command or cause")
    archive = runs.add_subparsers(metavar="archive").add_parser("archive", help="leave runs of yours out of the list")
    archive.set_defaults(command="archive")
    archive.add_argument("run", metavar="RUN", nargs="+", help="its name or id")
    show = commands.add_parser("show", help="show a run", allow_abbrev=False)
    logs = commands.add_parser("logs", help="print the output of a run", allow_abbrev=False)
    logs.add_argument("--rank", type=int, metavar="R", default=0, help="of several GPUs; default: 0")
    logs.add_argument("--attempt", type=int, metavar="A", help="default: the last one")
    stop = commands.add_parser("stop", help="stop a run of yours", allow_abbrev=False)
    again = commands.add_parser("again", help="start a run as another was started", allow_abbrev=False)
    attach = commands.add_parser("attach", help="run a shell beside your run", allow_abbrev=False)
    attach.usage = "bp attach RUN [--stack | -- COMMAND ...]"
    code = commands.add_parser("code", help="write the code of a run to a new folder", allow_abbrev=False)
    diff = commands.add_parser("diff", help="show what differs between two runs", allow_abbrev=False)
    compare = commands.add_parser("compare", help="show parameters that differ, and last metrics", allow_abbrev=False)
    files = commands.add_parser("files", help="list what a run has left, or copy it", allow_abbrev=False)
    for command in (show, logs, stop, again, attach, code, diff, files, compare):
        command.add_argument("run", metavar="RUN", help="its name or id")
    for command, count in ((code, None), (files, "?")):
        command.add_argument("folder", metavar="DIR", nargs=count, help="a folder that does not exist")
    for command, count in ((diff, None), (compare, "+")):
        command.add_argument("other", metavar="OTHER", nargs=count, help="name or id of another run")
    ui = commands.add_parser("ui", help="show the pages of the hub in a browser until Ctrl-C", allow_abbrev=False)
    ui.add_argument("service", nargs="?", choices=["mlflow", "session", "grafana"], default="mlflow")
    ui.add_argument("run", metavar="NAME", nargs="?", help="of a session, or of a dashboard of Grafana")
    doctor = commands.add_parser("doctor", help="check VPN, ssh, key, hub and clock", allow_abbrev=False)
    queue = commands.add_parser("queue", help="show which runs wait in the cluster, and why", allow_abbrev=False)
    top = commands.add_parser("top", help="show what the GPUs of your runs do, and what is idle", allow_abbrev=False)
    for name, text in (
        ("gpus", "show who has, uses and waits for GPUs"),
        ("search", "search for parameters of runs, with early stops"),
        ("session", "work in a run by hand, with ssh or JupyterLab"),
        ("board", "show runs in TensorBoard, or a study"),
        ("secret", "store values for your runs by name"),
    ):
        commands.add_parser(name, help=text, allow_abbrev=False)
    gpus, search = (commands.choices[name] for name in ("gpus", "search"))
    for command in (runs, queue):
        command.add_argument("-n", type=_count, metavar="N", default=20, help="how many; default: 20")
    output = compare.add_mutually_exclusive_group()
    for owner, name, text in (
        (runs, "--all", "of everyone"),
        (runs, "--archived", "also those that were archived"),
        (queue, "--all", "of everyone"),
        (top, "--all", "of everyone"),
        (logs, "-f", "go on until the run ends"),
        (stop, "--now", "without time for its program to end"),
        (again, "--failed", "of an array, elements that failed or never ran"),
        (attach, "--stack", "show where its Python processes are now, by py-spy"),
        (output, "--csv", "a line for each run, for other programs"),
        (output, "--page", "show MLflow's page of these runs, as `bp ui`"),
        *((part, "--json", _JSON) for part in (runs, show, doctor, gpus, queue, top, output, files, search)),
    ):
        owner.add_argument(name, action="store_true", help=text)
    _add_options(words[0] if words else "", commands.choices)
    options, unknown = parser.parse_known_args(words)
    if unknown:
        own = commands.choices.get(options.command, parser)
        own.error(f"unrecognized arguments: {' '.join(unknown)}{_hint(unknown[0], own)}")
    return options, program


def _hint(word: str, parser: argparse.ArgumentParser) -> str:
    """Return what may be meant by an unknown word: an option, or a command without its mark."""
    from difflib import get_close_matches  # noqa: PLC0415  slow to import

    known, text = re.findall(r"(?<!\S)--[a-z][a-z-]*", parser.format_help()), word.partition("=")[0]
    if word.startswith("-"):
        near = get_close_matches(text, known, 1)
        return f"; write {near[0]}" if near else ""
    return "; write -- before the command" if "-- COMMAND" in parser.format_usage() else ""


def _count(text: str) -> int:
    if text.isdecimal() and 0 < int(text) <= _MOST:
        return int(text)
    raise argparse.ArgumentTypeError(f"write a number from 1 to {_MOST}")


def _add_options(word: str, parsers: Mapping[str, argparse.ArgumentParser]) -> None:
    """Add the options of one command, whose module others start without."""
    if word in _STARTS:
        from .run import add_options  # noqa: PLC0415

        add_options(parsers["run"])
        add_options(parsers["again"], _REPEATED)
    elif word in {"gpus", "secret", "search", "session", "board"}:
        import_module(f".{word}", __package__).add_options(parsers[word])


def _run(options: argparse.Namespace, command: Sequence[str], program: Path) -> int:
    hub = Hub(load_settings(program))
    if options.command == "run" and vars(options)["in"]:
        from .session import run_in  # noqa: PLC0415  as above

        return run_in(hub, options, command)
    if options.command == "run":
        from .run import start_run  # noqa: PLC0415  as above

        return start_run(hub, options, command)
    if options.command in {"logs", "stop", "again", "attach", "diff", "archive"} or getattr(options, "folder", None):
        from .runs import act  # noqa: PLC0415  as above

        return act(hub, options, command)
    if options.command == "ui" and options.service == "session" and options.run:
        options.command, options.verb = "session", "open"
    if options.command == "ui":
        page = _page_of(options.service, options.run or "")
        if options.service == "grafana":
            # Here it is said if Grafana does not answer, or is not installed.
            hub.call("/grafana/api/health", patience=_HEALTH)
        return _serve(hub, page)
    if options.command == "compare" and options.page:
        return _serve(hub, records.comparison_page(_compared(hub, options)))
    if options.command in _ACTIONS and not _shows_once(options):
        act_on = getattr(import_module(f".{options.command}", __package__), _ACTIONS[options.command])
        return int(act_on(hub, options))
    document, lines, status = _answer(hub, options)
    _print([json.dumps(document, indent=2)] if options.json else map(printable, lines))
    return status


def _shows_once(options: argparse.Namespace) -> bool:
    """Return whether a command of `_ACTIONS` is to print one answer only."""
    if options.command == "top":
        return options.json or not sys.stdout.isatty()
    return getattr(options, "verb", "") in {"list", "show", "best"}


def _answer(hub: Hub, options: argparse.Namespace) -> "tuple[object, Iterable[str], int]":
    """Return what a command shows: its document, the same in lines, and the exit code."""
    document: object
    lines: Iterable[str]
    status = 0
    if options.command == "doctor":
        from .doctor import check_lines, checks  # noqa: PLC0415  as above

        document = results = list(checks(hub))
        lines, status = check_lines(results), 0 if all(result["ok"] for result in results) else MISSING
    elif options.command in {"gpus", "queue", "top"}:
        document, lines, status = _answer_about_gpus(hub, options)
    elif options.command == "search":
        from .search import read_search  # noqa: PLC0415  as above

        document, lines = read_search(hub, options.verb, options.word)
    elif options.command == "session":
        from .session import session_lines, sessions  # noqa: PLC0415  as above

        document = runs = sessions(hub)
        lines = session_lines(runs, hub.now)
    elif options.command == "secret":
        from .secret import change_secrets  # noqa: PLC0415  as above

        document = answers = change_secrets(hub, options.verb, options.names)
        lines, status = answer_lines(answers), PARTLY if "error" in {*chain(*answers.values())} else 0
    elif options.command == "show":
        document = run = records.find_run(hub, options.run)
        lines = records.show_lines(run, hub.now)
    elif options.command == "compare":
        document = rows = records.comparison(_compared(hub, options))
        lines = records.comparison_csv(rows) if options.csv else records.comparison_lines(rows)
    elif options.command == "files":
        document = files = records.output_files(hub, records.find_run(hub, options.run))
        lines = records.file_lines(files)
    else:
        options.owner = "" if options.all else options.owner or hub.settings.person
        document = runs = records.newest_runs(hub, vars(options), options.n)
        lines = records.run_lines(runs, hub.now)
    return document, lines, status


def _answer_about_gpus(hub: Hub, options: argparse.Namespace) -> "tuple[object, Iterable[str], int]":
    """Return what `gpus`, `queue` or `top` show, as `_answer`."""
    if options.command == "queue":
        from .queue import queue_lines, read_queue  # noqa: PLC0415  as above

        waiting = read_queue(hub, options.n, is_all=options.all)
        return waiting, queue_lines(waiting), 0
    if options.command == "top":
        from .top import read_top, top_lines  # noqa: PLC0415  as above

        figures = read_top(hub, is_all=options.all)
        return figures, top_lines(figures), PARTLY if figures["unknown"] else 0
    from .gpus import gpu_lines, read_gpus  # noqa: PLC0415  as above

    answers = read_gpus(hub, options)
    has_error = "error" in {*chain(*answers["machines"].values())}
    return answers, gpu_lines(answers), PARTLY if has_error else 0


def _compared(hub: Hub, options: argparse.Namespace) -> "Sequence[Mapping[str, Any]]":
    return [records.find_run(hub, word) for word in (options.run, *options.other)]


def _page_of(service: str, name: str) -> str:
    """Return the path of the first page of a service, or of a dashboard."""
    if not re.fullmatch("[a-z0-9-]{0,40}", name) or (name and service != "grafana"):
        raise BpError(f"{service} has no page {name}", "`bp ui grafana` lists the dashboards", WRONG)
    from .proxy import GRAFANA  # noqa: PLC0415  as above

    return "/" if service != "grafana" else f"{GRAFANA}d/bedplate-{name}" if name else GRAFANA


def _serve(hub: Hub, page: str = "/") -> int:
    hub.token()
    from .proxy import serve  # noqa: PLC0415  as above

    serve(hub, page)
    return 0


def _print(lines: Iterable[str]) -> None:
    try:
        # A terminal may lack characters of a name.
        encoding = sys.stdout.encoding
        sys.stdout.write("".join(f"{line}\n" for line in lines).encode(encoding, "replace").decode(encoding))
        sys.stdout.flush()
    except OSError as error:
        _close_output()
        raise BpError(f"cannot write to stdout: {error.strerror}") from None


def _close_output() -> None:
    # Python would report a closed pipe again when it ends.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
