"""The way to a gateway by the operator's own OpenSSH: its settings, its keys, its known hosts."""

import subprocess
from dataclasses import dataclass

from bedplate.errors import MachineError, PartError

# A gateway that does not answer within this is told as not reached; the others are asked meanwhile.
CONNECT_S, PATIENCE_S = 5, 30
# What ssh itself returns when it could not run the command (ssh(1), "EXIT STATUS").
_OWN_FAILURE = 255
_LONGEST = 200


@dataclass(frozen=True, slots=True)
class SshWay:
    """A host by the name that the operator's ssh knows it by."""

    host: str

    def run(self, command: str, told: str) -> str:
        """Run a command there with `told` on its standard input; PartError where it fails, MachineError without ssh."""
        options = ("-T", "-o", "BatchMode=yes", "-o", f"ConnectTimeout={CONNECT_S}")
        try:
            done = subprocess.run(  # noqa: S603  # the host is a name of the plan
                ["ssh", *options, "--", self.host, command],  # noqa: S607  # the operator's own, found on PATH
                input=told,
                capture_output=True,
                text=True,
                timeout=PATIENCE_S,
                check=False,
            )
        except FileNotFoundError:
            raise MachineError("there is no ssh on this machine", fix="install OpenSSH's client") from None
        except subprocess.TimeoutExpired:
            raise PartError(f"no answer within {PATIENCE_S} s") from None
        if done.returncode:
            raise PartError(_failure(done.returncode, done.stderr))
        return done.stdout


def _failure(status: int, errors: str) -> str:
    last = (errors.strip().splitlines() or ["it says nothing"])[-1][:_LONGEST]
    return f"not reached: {last}" if status == _OWN_FAILURE else f"it refused, with status {status}: {last}"
