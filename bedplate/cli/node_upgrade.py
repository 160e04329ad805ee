"""The command node upgrade: changes that need a drain or a reboot, on a few machines at a time."""

import tempfile
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Annotated

import typer

from bedplate.cli.fleet import plan_of
from bedplate.cli.login import SshOptions, ssh_targets
from bedplate.cli.node import push_folder
from bedplate.cli.node_apply import INTERRUPTED, ApplyProgress, Done, select_machines, shown
from bedplate.cli.output import (
    DEFAULT_FLEET,
    Every,
    FleetOption,
    Groups,
    Identity,
    Json,
    Names,
    Sites,
    SshConfig,
    User,
    notify,
    show,
    show_document,
)
from bedplate.lock import check_plan_recorded
from bedplate.nodes.apply import NodeError, Target, error_event, exit_status
from bedplate.nodes.bootstrap import PROGRAM
from bedplate.nodes.ssh import SshTargets
from bedplate.nodes.upgrade import Upgrades
from bedplate.plan.nodes import Platform
from bedplate.report.nodes import apply_document, apply_lines

_STOPPING = "stopping: machines that are being changed finish their changes, and are not rebooted"


def upgrade(  # noqa: PLR0913  each is an option of the command line
    names: Names = None,
    *,
    group: Groups = None,
    site: Sites = None,
    every: Every = False,
    at_once: Annotated[int, typer.Option("--at-once", metavar="N", min=1, help="Upgrade N machines at a time.")] = 1,
    now: Annotated[bool, typer.Option("--now", help="End the sessions of people instead of waiting for them.")] = False,
    user: User = None,
    identity: Identity = None,
    ssh_config: SshConfig = None,
    fleet: FleetOption = DEFAULT_FLEET,
    json: Json = False,
) -> int:
    """Drain, update and reboot machines.

    Applies all roles, also those whose changes wait. Refuses logins and waits up to an hour until nobody works on the
    machine, reboots it if required, and runs the health gate. Stops at the first machine that fails: exit status 6.
    """
    plan = plan_of(fleet)
    machines = select_machines(plan, names or (), group or (), site or (), every=every)
    check_plan_recorded(plan, fleet)
    with tempfile.TemporaryDirectory(prefix="bedplate-") as folder:
        ways = ssh_targets(Path(folder), plan, machines, SshOptions(fleet, user, identity, ssh_config))
        done = _upgrade_all(ways, at_once, "now" if now else "wait")
    if json:
        show_document(apply_document(done.outcomes))
    else:
        show(apply_lines(done.outcomes, check=False))
    return INTERRUPTED if done.interrupted else exit_status(done.outcomes, check=False)


def _upgrade_all(ways: SshTargets, at_once: int, mode: str) -> Done:
    """Upgrade machines and show the progress; begin no other machine after a failure."""
    progress = ApplyProgress([*(event.node for event in ways.missing), *(target.node.name for target in ways.targets)])
    done = Done(tuple(progress.outcomes.values()))
    upgrades, has_failed = Upgrades(progress.take), bool(ways.missing)

    def upgrade_one(target: Target) -> None:
        nonlocal has_failed
        if not has_failed and not done.interrupted:
            has_failed |= not _upgrade_machine(upgrades, target, mode)

    with shown(progress.board), ThreadPoolExecutor(at_once) as pool:
        for event in ways.missing:
            progress.take(event)
        futures: list[Future[None]] = [pool.submit(upgrade_one, target) for target in ways.targets]
        try:
            wait(futures)
        except KeyboardInterrupt:
            done.interrupted = True
            notify([_STOPPING])
            upgrades.stop()
    for future in futures:
        future.result()
    return done


def _upgrade_machine(upgrades: Upgrades, target: Target, mode: str) -> bool:
    if target.node.ground is Platform.CLOUD:
        return upgrades.upgrade(target, mode, PROGRAM, "fetch")
    try:
        script = push_folder(target)
    except NodeError as error:
        upgrades.report(error_event(target.node.name, error))
        return False
    return upgrades.upgrade(target, mode, script, "keep_script", "fetch")
