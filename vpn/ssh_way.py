"""The way to a gateway by OpenSSH: one command, told on its standard input, and what it prints."""

import subprocess
from dataclasses import dataclass

from bedplate.errors import MachineError, PartError

# A gateway that does not answer within this is told as not reached; the others are asked meanwhile.
CONNECT_S, PATIENCE_S = 5, 30
# What ssh itself returns when it could not run the command (ssh(1), "EXIT STATUS").
_OWN_FAILURE = 255
# What the keeper returns of what it does not take: it says what is to be done, and the same again is refused again.
_REFUSAL = 2
_LONGEST = 300


@dataclass(frozen=True, slots=True)
class SshWay:
    """A host: `argv` is the ssh, with its options and the host's name, that runs a command there."""

    argv: tuple[str, ...]

    def run(self, command: str, told: str) -> str:
        """Run a command there with `told` on its standard input; PartError where it fails, MachineError without ssh."""
        try:
            done = subprocess.run(  # noqa: S603  # the host is a name of the plan
                [*self.argv, command],
                input=told,
                capture_output=True,
                errors="replace",
                timeout=PATIENCE_S,
                check=False,
            )
        except FileNotFoundError:
            raise MachineError("there is no ssh on this machine", fix="install OpenSSH's client") from None
        except subprocess.TimeoutExpired:
            raise PartError(f"no answer within {PATIENCE_S} s") from None
        if done.returncode:
            fix = "do what it says" if done.returncode == _REFUSAL else ""
            raise PartError(_failure(done.returncode, done.stderr), fix=fix)
        return done.stdout


def own_way(host: str) -> SshWay:
    """Return the way by the operator's own settings, keys and known hosts, to the name that they know."""
    return SshWay(("ssh", "-T", "-o", "BatchMode=yes", "-o", f"ConnectTimeout={CONNECT_S}", "--", host))


def _failure(status: int, errors: str) -> str:
    last = (errors.strip().splitlines() or ["it says nothing"])[-1][:_LONGEST]
    return f"not reached: {last}" if status == _OWN_FAILURE else f"it refused, with status {status}: {last}"
