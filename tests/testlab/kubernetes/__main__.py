"""Build the programs of a control plane, or start one: `python -m tests.testlab.kubernetes [run]`."""

import signal
import sys

from tests.testlab.kubernetes.binaries import (
    EXTRAS,
    BuildError,
    build,
    build_extra,
    build_previous,
    find_programs,
)
from tests.testlab.kubernetes.control_plane import ControlPlane
from tests.testlab.kubernetes.upstream import fetch_manifests


def main() -> None:
    """Print the folder of the programs, or run a control plane with fake nodes until Ctrl-C."""
    try:
        folder = find_programs() or build()
        build_previous()
        for name in EXTRAS:
            build_extra(name)
        fetch_manifests()
    except BuildError as error:
        sys.exit(f"error: {error}")
    sys.stdout.write(f"{folder}\n")
    if sys.argv[1:] == ["run"]:
        with ControlPlane(folder) as plane:
            plane.start_kwok()
            sys.stdout.write(f"export KUBECONFIG={plane.kubeconfig()} PATH={folder}:$PATH\n")
            sys.stdout.flush()
            signal.sigwait([signal.SIGINT, signal.SIGTERM])


main()
