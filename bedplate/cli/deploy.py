"""The commands that run Pulumi's engine on the stacks of the fleet, and prepare, compare and repair their state."""

from pathlib import Path
from typing import Annotated

import typer

from bedplate.cli.options import OnFleetAsking, OnFleetEnding, OnFleetInJson, Parts, printed
from bedplate.errors import InputError, ViolationError, worst
from bedplate.operate import Result, apply, deploy
from bedplate.operate import recover as states

NoMachines = Annotated[bool, typer.Option("--no-machines", help="Do not configure machines after the deployment.")]


def preview(operator: OnFleetInJson, *, stack: Parts = None) -> int:
    """Show what `up` would change.

    A stack is previewed once it exists: it reads outputs of other stacks. The exit status is 6 if a preview failed.
    """
    preview = deploy.preview(operator, stack or [])
    preview.show(operator)
    result = Result((), preview.document, deploy.exit_status(operator, preview.states))
    return printed(result, as_json=operator.json)


def up(*, stack: Parts = None, operator: OnFleetEnding, no_machines: NoMachines = False) -> int:
    """Deploy the fleet.

    Records missing addresses and images, creates a missing backend, shows a preview with the running machines that it
    ends, asks, then runs every stack in order, regions in parallel. Stacks that the fleet file no longer has are
    destroyed. A new region gets its bundle as soon as its stack is there. Without --stack, it then applies roles to
    running machines. The exit status is 6 if a stack or machine failed; the same command continues.
    """
    return printed(deploy.up(operator, stack or [], with_machines=not no_machines), as_json=operator.json)


def destroy(*, stack: Parts = None, operator: OnFleetEnding) -> int:
    """Delete what was deployed, except for data.

    Names the running machines that end with it, and asks. File systems, buckets and keys are protected and kept.
    """
    return printed(deploy.destroy(operator, stack or []), as_json=operator.json)


def init(
    operator: OnFleetInJson,
    *,
    file: Annotated[
        Path | None,
        typer.Option("--file", metavar="DIR", help="Keep the state in this folder, secrets by a passphrase."),
    ] = None,
) -> int:
    """Prepare the state of the deployments.

    Creates an S3 bucket for the state and a KMS key for its secrets, records the bucket in Pulumi.yaml, and creates
    the stacks with their settings files. A backend that Pulumi.yaml or PULUMI_BACKEND_URL names is used as it is.

    A second run creates and restores only what is missing, such as the settings file of a stack.
    """
    return printed(deploy.init_backend(operator, file), as_json=operator.json)


def refresh(
    *,
    stack: Parts = None,
    check: Annotated[bool, typer.Option("--check", help="Only show the differences.")] = False,
    nodes: Annotated[bool, typer.Option("--nodes", help="Also audit all permanent machines.")] = False,
    operator: OnFleetAsking,
    junit: Annotated[Path | None, typer.Option("--junit", metavar="FILE", help="Write a JUnit XML report.")] = None,
) -> int:
    """Adopt the real state of AWS.

    Shows each property that differs between Pulumi's state and AWS, asks, then records the real values in the state.
    `bedplate up` afterwards changes AWS back to the fleet file.

    With --check nothing is changed, and the exit status is 3 if anything differs, 6 if a stack was not checked.
    """
    if not check and (operator.json or junit or nodes):
        raise InputError("--json, --junit and --nodes are for --check", fix="add --check")
    if operator.json and nodes:
        raise InputError("--json and --nodes exclude each other", fix="run `bedplate node audit --json` for machines")
    comparison = states.compare(operator, stack or [], junit)
    printed(comparison.result, as_json=operator.json)
    status = deploy.exit_status(operator, comparison.states)
    if check:
        status = ViolationError.exit_code if comparison.has_drifted else status
        return worst((status, printed(apply.audit(operator)))) if nodes else status
    if status or not comparison.has_drifted:
        return status
    return comparison.adopt(operator)


def recover(*, stack: Parts = None, operator: OnFleetAsking) -> int:
    """Repair the state after a killed run.

    Releases the lock of a dead run, adds to the state the resources that the run created without recording them, and
    reads the resources that it was changing from AWS. Asks first, and keeps a copy of the old state.
    """
    return printed(states.recover(operator, stack or []), as_json=operator.json)
