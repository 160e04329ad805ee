"""`bp gpus`: who has the GPUs of machines, which ssh asks, and those of the cluster, as the records say."""

import argparse
import json
import os
import re
from collections.abc import Iterator, Mapping
from typing import Any

from .hub import WRONG, BpError, Hub, answer_lines, ask_all
from .records import newest_runs

_MOST = 1_000
# An interactive shell ignores SIGTERM.
_SHELL = "timeout --foreground --signal=HUP --kill-after=60 {} sh -c 'exec $SHELL -l'"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `bp gpus`."""
    hold = parser.add_subparsers(dest="verb", metavar="hold").add_parser("hold", help="wait for a shell with GPUs")
    hold.add_argument("gpus", type=int, choices=range(1, 17), metavar="N")
    hold.add_argument("--for", metavar="TIME", dest="time", required=True, help="the longest time: 30m, 4h or 2d")
    hold.add_argument("--on", metavar="MACHINE", dest="machine", required=True)


def _hold_gpus(hub: Hub, machine: str, gpus: int, time: str) -> None:
    """Become an ssh with a shell that has GPUs."""
    if not re.fullmatch("[1-9][0-9]{0,3}[mhd]", time):
        raise BpError(f"{time!r} is not a time", "write 30m, 4h or 2d", WRONG)
    # Other commands start without it.
    from .places import choose_place  # noqa: PLC0415

    # People have no shell on nodes of the cluster.
    name = choose_place({**hub.fleet(), "groups": {}}, machine, "", {"gpus": gpus, "nodes": 1}).name
    words = (*hub.ssh_words(name), f"bedplate-gpus run --gpus {gpus} -- {_SHELL.format(time)}")
    os.execvp("ssh", ("ssh", "-t", "-a", "-x", *words))  # noqa: S606, S607  a machine of the fleet


def read_gpus(hub: Hub, options: argparse.Namespace) -> Mapping[str, Any]:
    """Return what each machine with GPUs says, or its `error`, and the runs that have GPUs of the cluster."""
    if options.verb:
        _hold_gpus(hub, options.machine, options.gpus, options.time)
    machines = hub.fleet()["machines"].items()
    names = [name for name, facts in machines if facts["ssh"] and facts["gpus"] != 0]
    runs = [run for run in newest_runs(hub, {"archived": True}, _MOST) if run["status"] == "RUNNING"]
    in_cluster = [run for run in runs if _tag(run, "gpus") not in "-0" and _tag(run, "machine") not in names]
    return {
        "machines": ask_all(names, lambda name: _ask(hub, name, "--json" if options.json else "")),
        "cluster": in_cluster,
        "sessions": [run["name"] for run in runs if "bedplate.session" in run["tags"]],
    }


def _tag(run: Mapping[str, Any], name: str) -> str:
    return str(run["tags"].get(f"bedplate.{name}", "-"))


def _ask(hub: Hub, name: str, option: str) -> Mapping[str, Any]:
    """Return the document of a machine, or its lines without the option `--json`."""
    text = hub.ask(name, f"bedplate-gpus show {option}")
    return dict(json.loads(text)) if option else {"lines": text.splitlines()}


def gpu_lines(document: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of each machine, and a line for each run in the cluster."""
    sessions = {*document["sessions"]}
    in_cluster = (
        f"{_tag(run, 'group')} (cluster): {_tag(run, 'gpus')} GPUs for {_tag(run, 'owner')}, {run['name']}"
        for run in document["cluster"]
    )
    for line in (*answer_lines(document["machines"]), *in_cluster):
        yield f"{line}, a session" if sessions.intersection(re.findall(r"[\w.-]+", line)) else line
