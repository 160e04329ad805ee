"""The commands that log in to one machine: bedplate ssh, node logs, and node burn-in."""

from typing import Annotated

import typer

from bedplate.cli.options import WithLoginName
from bedplate.operate.login import carry, log_in

Machine = Annotated[
    str, typer.Argument(metavar="MACHINE|GROUP", help="A machine, a group with one, or an instance id.")
]


def ssh(
    name: Machine,
    command: Annotated[
        list[str] | None, typer.Argument(metavar="[-- COMMAND]", help="Run this instead of a shell.")
    ] = None,
    *,
    proxy: Annotated[bool, typer.Option("--proxy", help="Be the ProxyCommand of ssh for NAME.")] = False,
    operator: WithLoginName,
) -> int:
    """Log in to a machine.

    It connects over the VPN if the machine answers, else through AWS Session Manager. The exit status is that of ssh.
    """
    if proxy:
        carry(operator, name)
        return 0
    return log_in(operator, name, command or ())


_UNITS = ("cloud-final", "bedplate-node", "bedplate-gate", "bedplate-end")
_JOURNAL = ("sudo", "-n", "journalctl", "--no-pager", "--output=short-iso", *(f"--unit={unit}" for unit in _UNITS))


def show_logs(name: Machine, operator: WithLoginName) -> int:
    """Show how a machine configured itself.

    Prints the journal of its bootstrap, configuration runs and gate. The login needs sudo. The exit status is that of
    ssh.
    """
    return log_in(operator, name, _JOURNAL)


_BURN_IN = ("sudo", "-n", "/usr/local/sbin/bedplate-gate", "--burn-in")


def burn_in(name: Machine, operator: WithLoginName) -> int:
    """Test a machine's GPUs for minutes.

    Runs DCGM's diagnostics of level 3, and NCCL's all-reduce if nccl-tests is installed, whose bandwidth is compared
    with the catalogue. Refuses GPUs in use. The exit status is 3 if a test failed, else that of ssh.
    """
    return log_in(operator, name, _BURN_IN)
