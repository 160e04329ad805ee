"""`bp gpus`: who has the GPUs of machines, which ssh asks, and those of the cluster, as the records say."""

import argparse
import json
import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from .hub import SSH_OPTIONS, WRONG, BpError, Hub
from .records import newest_runs

_AT_ONCE, _MOST = 8, 1_000
# Seconds: nvidia-smi may take ten of them, twice.
_SECONDS = 40
# Eight connections at once must not ask for passphrases.
_OPTIONS = (*SSH_OPTIONS.split(), "-o", "BatchMode=yes", "-o", "ConnectTimeout=10")
# An interactive shell ignores SIGTERM.
_SHELL = "timeout --foreground --signal=HUP --kill-after=60 {} sh -c 'exec $SHELL -l'"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `bp gpus`."""
    hold = parser.add_subparsers(dest="verb", metavar="hold").add_parser("hold", help="wait for a shell with GPUs")
    hold.add_argument("gpus", type=int, choices=range(1, 17), metavar="N")
    hold.add_argument("--for", metavar="TIME", dest="time", required=True, help="the longest time: 30m, 4h or 2d")
    hold.add_argument("--on", metavar="MACHINE", dest="machine", required=True)


def hold_gpus(hub: Hub, machine: str, gpus: int, time: str) -> None:
    """Become an ssh with a shell that has GPUs."""
    if not re.fullmatch("[1-9][0-9]{0,3}[mhd]", time):
        raise BpError(f"{time!r} is not a time", "write 30m, 4h or 2d", WRONG)
    # Other commands start without it.
    from .places import choose_place  # noqa: PLC0415

    # People have no shell on nodes of the cluster.
    name = choose_place({**hub.fleet(), "groups": {}}, machine, "", gpus).name
    words = (*hub.ssh_words(name), f"bedplate-gpus run --gpus {gpus} -- {_SHELL.format(time)}")
    os.execvp("ssh", ("ssh", "-t", "-a", "-x", *words))  # noqa: S606, S607  a machine of the fleet


def read_gpus(hub: Hub, option: str) -> Mapping[str, Any]:
    """Return what each machine with GPUs says, or its `error`, and the runs that have GPUs of the cluster."""
    machines = hub.fleet()["machines"].items()
    names = [name for name, facts in machines if facts["ssh"] and facts["gpus"] != 0]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        answers = list(pool.map(lambda name: _ask(hub, name, option), names))
    runs = [run for run in newest_runs(hub, {"archived": True}, _MOST) if run["status"] == "RUNNING"]
    in_cluster = [run for run in runs if _tag(run, "gpus") not in "-0" and _tag(run, "machine") not in names]
    return {"machines": dict(zip(names, answers)), "cluster": in_cluster}


def _tag(run: Mapping[str, Any], name: str) -> str:
    return str(run["tags"].get(f"bedplate.{name}", "-"))


def _ask(hub: Hub, name: str, option: str) -> Mapping[str, Any]:
    """Return the document of a machine, or its lines without the option `--json`."""
    try:
        command = ("ssh", *_OPTIONS, *hub.ssh_words(name), f"bedplate-gpus show {option}")
        done = subprocess.run(  # noqa: S603  a machine of the fleet
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=_SECONDS, check=False
        )
        text, errors = (stream.decode(errors="replace").strip() for stream in (done.stdout, done.stderr))
        if done.returncode == 0:
            return dict(json.loads(text)) if option else {"lines": text.splitlines()}
        return {"error": errors.splitlines()[-1] if errors else f"status {done.returncode}"}
    except subprocess.TimeoutExpired:
        return {"error": f"no answer within {_SECONDS} s"}
    except (BpError, OSError, ValueError, TypeError) as error:
        return {"error": str(error)}


def gpu_lines(document: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of each machine, and a line for each run in the cluster."""
    for name, answer in document["machines"].items():
        yield f"{name}: {answer['error']}" if "error" in answer else name
        yield from (f"  {line}" for line in answer.get("lines", ()))
    for run in document["cluster"]:
        yield f"{_tag(run, 'group')} (cluster): {_tag(run, 'gpus')} GPUs for {_tag(run, 'owner')}, {run['name']}"
