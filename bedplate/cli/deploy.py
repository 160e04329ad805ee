"""The commands that run Pulumi's engine on the stacks of the fleet, and prepare, compare and repair their state."""

from pathlib import Path
from typing import Annotated

import typer

from bedplate.cli.options import Json, OnFleet, OnFleetAsking, OnFleetEnding, Parts, printed
from bedplate.errors import InputError, ViolationError, worst
from bedplate.operate import Result, apply, deploy
from bedplate.operate import recover as states

NoMachines = Annotated[bool, typer.Option("--no-machines", help="Do not configure machines after the deployment.")]


def preview(operator: OnFleet, *, stack: Parts = None, json: Json = False) -> int:
    """Show what `up` would change.

    A stack is previewed once it exists: it reads outputs of other stacks. The exit status is 6 if a preview failed.
    """
    preview = deploy.preview(operator, stack or [])
    if json:
        printed(Result((), preview.document), as_json=True)
    else:
        preview.show(operator)
    return deploy.exit_status(operator, preview.states)


def up(*, stack: Parts = None, operator: OnFleetEnding, no_machines: NoMachines = False) -> int:
    """Deploy the fleet.

    Records missing addresses and images, creates a missing backend, shows a preview with the running machines that it
    ends, asks, then runs every stack in order, regions in parallel. Stacks that the fleet file no longer has are
    destroyed. A new region gets its bundle as soon as its stack is there. Without --stack, it then applies roles to
    running machines. The exit status is 6 if a stack or machine failed; the same command continues.
    """
    return deploy.up(operator, stack or [], with_machines=not no_machines)


def destroy(*, stack: Parts = None, operator: OnFleetEnding) -> int:
    """Delete what was deployed, except for data.

    Names the running machines that end with it, and asks. File systems, buckets and keys are protected and kept.
    """
    return deploy.destroy(operator, stack or [])


def init(
    operator: OnFleet,
    *,
    file: Annotated[
        Path | None,
        typer.Option("--file", metavar="DIR", help="Keep the state in this folder, secrets by a passphrase."),
    ] = None,
) -> None:
    """Prepare the state of the deployments.

    Creates an S3 bucket for the state and a KMS key for its secrets, records the bucket in Pulumi.yaml, and creates
    the stacks with their settings files. A backend that Pulumi.yaml or PULUMI_BACKEND_URL names is used as it is.

    A second run creates and restores only what is missing, such as the settings file of a stack.
    """
    deploy.init_backend(operator, file)


def refresh(  # noqa: PLR0913  each is an option of the command line
    *,
    stack: Parts = None,
    check: Annotated[bool, typer.Option("--check", help="Only show the differences.")] = False,
    nodes: Annotated[bool, typer.Option("--nodes", help="Also audit all permanent machines.")] = False,
    operator: OnFleetAsking,
    json: Json = False,
    junit: Annotated[Path | None, typer.Option("--junit", metavar="FILE", help="Write a JUnit XML report.")] = None,
) -> int:
    """Adopt the real state of AWS.

    Shows each property that differs between Pulumi's state and AWS, asks, then records the real values in the state.
    `bedplate up` afterwards changes AWS back to the fleet file.

    With --check nothing is changed, and the exit status is 3 if anything differs, 6 if a stack was not checked.
    """
    if not check and (json or junit or nodes):
        raise InputError("--json, --junit and --nodes are for --check", fix="add --check")
    if json and nodes:
        raise InputError("--json and --nodes exclude each other", fix="run `bedplate node audit --json` for machines")
    comparison = states.compare(operator, stack or [], junit)
    printed(comparison.result, as_json=json)
    status = deploy.exit_status(operator, comparison.states)
    if check:
        status = ViolationError.exit_code if comparison.has_drifted else status
        return worst((status, printed(apply.audit(operator)))) if nodes else status
    if status or not comparison.has_drifted:
        return status
    return comparison.adopt(operator)


def recover(*, stack: Parts = None, operator: OnFleetAsking) -> None:
    """Repair the state after a killed run.

    Releases the lock of a dead run, adds to the state the resources that the run created without recording them, and
    reads the resources that it was changing from AWS. Asks first, and keeps a copy of the old state.
    """
    states.recover(operator, stack or [])
