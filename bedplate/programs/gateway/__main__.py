"""`bedplate-vpn activate | apply | status | metrics FILE`: called by operators over SSH, and by a timer for metrics."""

import argparse
import json
import os
import sys
from pathlib import Path

from ..program import ProgramError, write_text
from .access_list import activate_access_list, parse_access_list
from .config_bundle import apply_bundle
from .paths import GatewayPaths, parse_config_bundle
from .sessions import update_starts, write_last_seen
from .status import read_status, write_metrics

# Characters of an access list or a config bundle: one of a thousand laptops has about a million.
_LARGEST = 1 << 26


def main() -> int:
    """Run one command and return the exit status: 2 if the input was rejected, 6 if a daemon did not answer."""
    # sudo passes on the umask of the user: the daemons could not read files written under a strict one.
    os.umask(0o022)
    arguments = _parse_arguments()
    paths = GatewayPaths(arguments.settings, arguments.sockets, arguments.owner, arguments.state, arguments.root)
    try:
        _run(arguments, paths)
    except ProgramError as error:
        sys.stderr.write(f"{error}\n")
        return error.status
    return 0


def _run(arguments: argparse.Namespace, paths: GatewayPaths) -> None:
    if arguments.command == "activate":
        sys.stdout.write(json.dumps(activate_access_list(paths, parse_access_list(sys.stdin.read(_LARGEST)))))
    elif arguments.command == "apply":
        sys.stdout.write(json.dumps(apply_bundle(paths, parse_config_bundle(sys.stdin.read(_LARGEST)))))
    elif arguments.command == "status":
        sys.stdout.write(json.dumps(read_status(paths).document()))
    else:
        status = read_status(paths)
        connected = [session for sessions in status.laptops.values() for session in sessions or ()]
        write_text(paths.starts, json.dumps(update_starts(paths.starts, connected, status.time)))
        write_last_seen(paths.last_seen, status.seen)
        write_metrics(arguments.file, status)


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bedplate-vpn")
    parser.add_argument("--settings", type=Path, default=GatewayPaths.settings)
    parser.add_argument("--sockets", type=Path, default=GatewayPaths.sockets)
    parser.add_argument("--owner", default=GatewayPaths.owner)
    parser.add_argument("--state", type=Path, default=GatewayPaths.state)
    parser.add_argument("--root", type=Path, default=GatewayPaths.root)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("activate", help="activate the access list on standard input")
    commands.add_parser("apply", help="apply the config bundle on standard input")
    commands.add_parser("status", help="print the status of this gateway as JSON")
    commands.add_parser("metrics", help="write the status as Prometheus metrics").add_argument("file", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
