"""Boot a test node and keep it until Ctrl-C: `python -m tests.testlab.machines boot NAME [ADDRESS] [--bare]`."""

import argparse
import signal

from tests.testlab.machines.layers import baked, bare
from tests.testlab.machines.stand import Stand


def main() -> None:
    """Boot the node, and say how it is reached."""
    asked = _asked()
    with Stand(bare() if asked.bare else baked()) as stand:
        node = stand.boot(asked.name, asked.address)
        inside = f"ip netns exec {stand.desk.host.namespace}"
        print(f"{node.name} runs; Ctrl-C takes it down")  # noqa: T201  a program for people
        print(f"  {inside} ssh -F {stand.ssh_config} {node.name}")  # noqa: T201
        print(f"  its root: {node.root}")  # noqa: T201
        signal.sigwait({signal.SIGINT, signal.SIGTERM})


def _asked() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.testlab.machines", description=__doc__)
    parser.add_argument("verb", choices=["boot"])
    parser.add_argument("name")
    parser.add_argument("address", nargs="?", default="192.168.40.21")
    parser.add_argument("--bare", action="store_true", help="without the packages that roles install")
    return parser.parse_args()


if __name__ == "__main__":
    main()
