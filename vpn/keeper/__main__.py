"""`bedplate-vpn take | lay | status | metrics FILE`: what an operator asks of a gateway, and its timer."""

import argparse
import json
import os
import sys
from pathlib import Path

from .book import parse_book, take
from .lay import lay
from .place import Place, Trouble, parse_shipment
from .sessions import remember
from .status import status, write_metrics


def main() -> int:
    """Do what is asked, and return the exit status: 2 where it is refused, 6 where a daemon did not answer."""
    # sudo hands on the mask of whoever logged in, under which the daemons could not read what is put here for them.
    os.umask(0o022)
    asked = _arguments()
    place = Place(asked.settings, asked.sockets, asked.owner, asked.memory, asked.root)
    try:
        _do(asked, place)
    except Trouble as trouble:
        sys.stderr.write(f"{trouble}\n")
        return trouble.status
    return 0


def _do(asked: argparse.Namespace, place: Place) -> None:
    if asked.what == "take":
        sys.stdout.write(json.dumps(take(place, parse_book(sys.stdin.read()))))
    elif asked.what == "lay":
        sys.stdout.write(json.dumps(lay(place, parse_shipment(sys.stdin.read()))))
    elif asked.what == "status":
        sys.stdout.write(json.dumps(status(place).document()))
    else:
        now = status(place)
        remember(place.seen, now.seen)
        write_metrics(asked.file, now)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bedplate-vpn")
    parser.add_argument("--settings", type=Path, default=Place.settings)
    parser.add_argument("--sockets", type=Path, default=Place.sockets)
    parser.add_argument("--owner", default=Place.owner)
    parser.add_argument("--memory", type=Path, default=Place.memory)
    parser.add_argument("--root", type=Path, default=Place.root)
    what = parser.add_subparsers(dest="what", required=True)
    what.add_parser("take", help="put the book on standard input in force")
    what.add_parser("lay", help="put the files of tunnels on standard input in force")
    what.add_parser("status", help="print how this gateway is, as JSON")
    what.add_parser("metrics", help="write how this gateway is for Prometheus").add_argument("file", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
