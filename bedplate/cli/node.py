"""The commands about machines that do not log in to any: node list, bootstrap, ssh-config."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from bedplate.account.client import failure_lines
from bedplate.account.machines import read_machines, read_node_statuses
from bedplate.bundle import targets
from bedplate.catalog import load_catalog
from bedplate.cli.options import DEFAULT_FLEET, FleetOption, Identity, Json, LoginName, Pythons, Terminal
from bedplate.cli.output import notify, show, show_document
from bedplate.errors import InputError, PartialError
from bedplate.files import os_errors_as_machine_errors, write_together
from bedplate.nodes.bootstrap import site_script
from bedplate.nodes.host_keys import known_hosts
from bedplate.nodes.ssh import FILE_HEADER, NodeLocation, nodes_by_name, ssh_config
from bedplate.operate.fleet import open_account, plan_of
from bedplate.operate.login import check_files_exist, interactive_login, is_in_cloud, with_proxy
from bedplate.operate.site_folder import script_name, site_files, write_folder
from bedplate.plan import FleetPlan
from bedplate.plan.nodes import NodePlan, permanent_nodes, pool_nodes
from bedplate.plan.planner import baked_image
from bedplate.report.nodes import LiveFacts, machine_document, machine_lines, node_document, node_lines


def list_nodes(
    *,
    live: Annotated[bool, typer.Option("--live", help="Ask AWS for the running machines of groups instead.")] = False,
    fleet: FleetOption = DEFAULT_FLEET,
    json: Json = False,
) -> int:
    """Show the fleet's machines."""
    plan = plan_of(Terminal(fleet))
    return _list_running(plan, json=json) if live else _list_planned(plan, json=json)


def _list_planned(plan: FleetPlan, *, json: bool) -> int:
    permanent, pooled = permanent_nodes(plan), tuple(pool_nodes(plan, load_catalog()))
    keys = plan.record.host_keys
    if json:
        nodes = [*((node, True) for node in permanent), *((node, False) for node in pooled)]
        show_document(node_document(nodes, keys))
    else:
        show(node_lines(permanent, pooled, keys))
    return 0


def _list_running(plan: FleetPlan, *, json: bool) -> int:
    client = open_account(plan)
    answers = read_machines(client, plan)
    running = [machine for region in answers.successes.values() for machine in region]
    owners = {region: {machine.instance for machine in machines} for region, machines in answers.successes.items()}
    status = read_node_statuses(client, plan, {region: owned for region, owned in owners.items() if owned})
    facts = LiveFacts(
        datetime.now(UTC),
        {pool.name: pool for pool in plan.pools},
        load_catalog(),
        {instance: node_status for region in status.successes.values() for instance, node_status in region.items()},
        {pool.name: image for pool in plan.pools if (image := baked_image(plan, pool, load_catalog()))},
    )
    if json:
        show_document(machine_document(running, plan.record.host_keys, facts))
    else:
        show(machine_lines(running, plan.record.host_keys, facts))
    notify(f"unknown machines: {line}" for line in failure_lines(answers.failures))
    notify(f"unknown status: {line}" for line in failure_lines(status.failures))
    return PartialError.exit_code if answers.failures or status.failures else 0


def bootstrap(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A machine of a site, such as titan-01.cellar.")],
    *,
    folder: Annotated[
        Path | None,
        typer.Option("--folder", metavar="DIR", help="Write the script, a bundle and a cloud-init seed to DIR."),
    ] = None,
    python: Pythons = None,
    fleet: FleetOption = DEFAULT_FLEET,
) -> int:
    """Print a machine's first-boot script.

    With --folder, the machine configures itself: copy DIR to a USB stick and run its script as root there. A stick with
    the label CIDATA does so by cloud-init.
    """
    (node,) = nodes_by_name(plan_of(Terminal(fleet)), [name], load_catalog())
    script = site_script(node)
    if folder is None:
        show(script.splitlines())
        return 0
    write_folder(folder, site_files(node, targets(tuple(python or ()))))
    show([f"wrote {folder}; on {node.name}, as root: `bash {script_name(node)}`"])
    return 0


_KNOWN_HOSTS = "known_hosts"
_DEFAULT_CONFIG = Path("~/.ssh/bedplate")


def show_ssh_config(
    *,
    write: Annotated[
        Path | None, typer.Option("--write", metavar="FILE", help="Write to FILE, and host keys to FILE.known_hosts.")
    ] = None,
    user: LoginName = None,
    identity: Identity = None,
    fleet: FleetOption = DEFAULT_FLEET,
) -> int:
    """Print OpenSSH settings for the fleet."""
    operator = Terminal(fleet, user, identity)
    plan = plan_of(operator)
    check_files_exist(identity)
    nodes = (*permanent_nodes(plan), *pool_nodes(plan, load_catalog()))
    file = (write or _DEFAULT_CONFIG).expanduser().absolute()
    keys_file, keys = _known_hosts_of(file), known_hosts(nodes, plan.record.host_keys).encode()
    machines = map(NodeLocation, nodes)
    paths = (with_proxy(machine, fleet) if is_in_cloud(machine) else machine for machine in machines)
    config = ssh_config(paths, keys_file, interactive_login(operator, plan))
    if write is None:
        show(config.splitlines())
        notify(_unwritten_key_lines(file, keys))
    else:
        _check_overwrite(file)
        write_together({keys_file: keys, file: config.encode()})
        notify([f"wrote {file} and {keys_file.name}; add at the top of ~/.ssh/config: Include {file}"])
    notify(_untrusted_lines(plan, nodes))
    return 0


def _known_hosts_of(config: Path) -> Path:
    return config.with_name(f"{config.name}.{_KNOWN_HOSTS}")


def _unwritten_key_lines(config: Path, keys: bytes) -> Iterator[str]:
    """Yield a note if the host keys that the printed settings refer to are not in their file."""
    keys_file = _known_hosts_of(config)
    if keys_file.is_file():
        with os_errors_as_machine_errors(keys_file, "read"):
            if keys_file.read_bytes() == keys:
                return
    yield f"note: {keys_file} does not hold the host keys; ssh refuses every machine without them"
    yield f"  fix  `bedplate node ssh-config --write {config}` writes both files"


def _untrusted_lines(plan: FleetPlan, nodes: Sequence[NodePlan]) -> Iterator[str]:
    untrusted = sum(node.name not in plan.record.host_keys for node in nodes)
    if untrusted:
        yield f"{untrusted} of {len(nodes)} machines have no recorded host key: record it with `bedplate node trust`"


def _check_overwrite(file: Path) -> None:
    """Raise InputError for a file that bedplate did not write, such as the operator's ~/.ssh/config."""
    if not file.is_file():
        return
    with os_errors_as_machine_errors(file, "read"):
        content = file.read_bytes()
    if content and not content.startswith(FILE_HEADER.encode()):
        fix = "write to a separate file, such as ~/.ssh/bedplate, and Include it"
        raise InputError(f"bedplate did not write {file} and does not overwrite it", fix=fix)
