"""The commands for the hub: its status and logs, a restore of its backups, a new key of tokens, and a purge."""

from typing import Annotated

import typer

from bedplate.cli.options import By, Json, Terminal, WithLogin, WithLoginName, printed
from bedplate.operate import hub, plan_of
from bedplate.operate.login import log_in


def status(operator: WithLogin, *, json: Json = False) -> int:
    """Show the state of the hub.

    Versions, units, disk and the bytes of each person, the last backup, and the requests of the last hour with their
    clients. The exit status is 3 if something is wrong.
    """
    return printed(hub.status(operator), as_json=json)


def logs(
    unit: Annotated[
        str | None, typer.Argument(metavar="[UNIT]", help="One unit, such as mlflow. Default: all of the hub.")
    ] = None,
    *,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with new lines until Ctrl-C.")] = False,
    operator: WithLoginName,
) -> int:
    """Show the journal of the hub's programs.

    The last 200 lines. The login needs sudo. The exit status is that of ssh.
    """
    return log_in(operator, hub.hub_of(plan_of(operator)).node, hub.journal_command(unit, follows=follow))


def restore(
    *,
    at: Annotated[
        str | None, typer.Option("--at", metavar="TIME", help="The last backup up to then. Default: the newest.")
    ] = None,
    operator: Annotated[Terminal, By(("yes", "json", "user", "identity", "ssh_config"), is_argument=False)],
) -> int:
    """Restore records, keys and files of the hub from a backup.

    It lists the backups, and asks. Records that are newer than the backup are lost. The records of before serve again
    if MLflow does not answer with those of the backup. Keys come back to a new volume only; files that are there stay.
    """
    return printed(hub.restore(operator, at), as_json=operator.json)


def rotate(
    *,
    now: Annotated[
        bool, typer.Option("--now", help="End the tokens of runs too, which otherwise end with their runs.")
    ] = False,
    operator: Annotated[Terminal, By(("yes", "user", "identity", "ssh_config"), is_argument=False)],
) -> int:
    """Make a new key for the hub's tokens.

    Tokens of people end at once; they get new ones by their SSH keys. A second rotation ends all older tokens of runs.
    """
    return printed(hub.rotate(operator, now=now))


def purge(
    ident: Annotated[str, typer.Argument(metavar="TREE|RUN", help="40 digits of a tree, or 32 of a run of MLflow.")],
    *,
    operator: Annotated[Terminal, By(("yes", "user", "identity", "ssh_config"), is_argument=False)],
) -> int:
    """Delete what leaked, backups included.

    Of a tree its packs, and those that need them: their runs stay, without code. Of a run its record, artefacts and
    logs, and all backups of records. It shows what it will delete, and asks.
    """
    return printed(hub.purge(operator, ident))


def prune(
    *,
    older: Annotated[str, typer.Option("--older", metavar="90d", help="Only of runs that ended before so many days.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be deleted.")] = False,
    operator: Annotated[Terminal, By(("yes", "user", "identity", "ssh_config"), is_argument=False)],
) -> int:
    """Delete old packs and logs from the disk of the hub.

    Packs and logs of runs that go on or have ended since stay, and so do all records, artefacts and backups. It shows
    what it will delete, and asks.
    """
    return printed(hub.prune(operator, older, dry_run=dry_run))
