"""Boot a test node and keep it until Ctrl-C: `python -m tests.testlab.machines boot NAME [ADDRESS] [--bare]`."""

import argparse
import signal

from tests.testlab.machines.layers import baked, bare
from tests.testlab.machines.node_lab import NodeLab


def main() -> None:
    """Boot a node, print how to reach it, and shut it down on Ctrl-C."""
    arguments = _arguments()
    with NodeLab(bare() if arguments.bare else baked()) as node_lab:
        node = node_lab.boot(arguments.name, arguments.address)
        inside = f"ip netns exec {node_lab.workstation.host.namespace}"
        lines = (
            f"{node.name} is running; Ctrl-C shuts it down",
            f"  {inside} ssh -F {node_lab.ssh_config} {node.name}",
            f"  root folder: {node.root}",
        )
        print("\n".join(lines), flush=True)  # noqa: T201  a program for people
        signal.sigwait({signal.SIGINT, signal.SIGTERM})


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.testlab.machines", description=__doc__)
    parser.add_argument("command", choices=["boot"])
    parser.add_argument("name", help="name of the node, such as titan-01.cellar")
    parser.add_argument(
        "address", nargs="?", default="192.168.40.21", help="address of the node (default: %(default)s)"
    )
    parser.add_argument("--bare", action="store_true", help="without the packages that roles install")
    return parser.parse_args()


if __name__ == "__main__":
    main()
