"""The fleet's machines without a login to any: their list, first-boot scripts, and settings of OpenSSH."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

from bedplate.account.client import failure_lines
from bedplate.account.machines import read_machines, read_node_statuses
from bedplate.bundle import targets
from bedplate.catalog import load_catalog
from bedplate.errors import InputError, PartialError
from bedplate.files import check_files_exist, os_errors_as_machine_errors, write_together
from bedplate.nodes.bootstrap import site_script
from bedplate.nodes.host_keys import known_hosts
from bedplate.nodes.ssh import FILE_HEADER, NodeLocation, nodes_by_name, ssh_config
from bedplate.operate import Operator, Result, open_account, plan_of
from bedplate.operate.login import interactive_login, is_in_cloud, with_proxy
from bedplate.operate.site_folder import script_name, site_files, write_folder
from bedplate.plan import FleetPlan
from bedplate.plan.nodes import NodePlan, permanent_nodes, pool_nodes
from bedplate.plan.planner import baked_image
from bedplate.report.nodes import LiveFacts, machine_document, machine_lines, node_document, node_lines


def list_nodes(operator: Operator, *, is_live: bool) -> Result:
    """Return the fleet's machines, or with `is_live` the running machines of groups that AWS reports."""
    plan = plan_of(operator)
    return _running(plan) if is_live else _planned(plan)


def _planned(plan: FleetPlan) -> Result:
    permanent, pooled = permanent_nodes(plan), tuple(pool_nodes(plan, load_catalog()))
    keys = plan.record.host_keys
    nodes = [*((node, True) for node in permanent), *((node, False) for node in pooled)]
    return Result(node_lines(permanent, pooled, keys), node_document(nodes, keys))


def _running(plan: FleetPlan) -> Result:
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
    notes = (
        *(f"unknown machines: {line}" for line in failure_lines(answers.failures)),
        *(f"unknown status: {line}" for line in failure_lines(status.failures)),
    )
    keys = plan.record.host_keys
    document = machine_document(running, keys, facts)
    return Result(machine_lines(running, keys, facts), document, PartialError.exit_code if notes else 0, notes)


def first_boot(operator: Operator, name: str, folder: Path | None, pythons: Sequence[str]) -> Result:
    """Return a machine's first-boot script; with a folder, write it there with a bundle and a cloud-init seed."""
    (node,) = nodes_by_name(plan_of(operator), [name], load_catalog())
    script = site_script(node)
    if folder is None:
        return Result(script.splitlines())
    write_folder(folder, site_files(node, targets(tuple(pythons))))
    return Result([f"wrote {folder}; on {node.name}, as root: `bash {script_name(node)}`"])


_KNOWN_HOSTS = "known_hosts"
_DEFAULT_CONFIG = Path("~/.ssh/bedplate")


def write_settings(operator: Operator, write: Path | None) -> Result:
    """Return OpenSSH settings for the fleet; with a file, write them there, with host keys beside it."""
    plan = plan_of(operator)
    check_files_exist(operator.identity)
    nodes = (*permanent_nodes(plan), *pool_nodes(plan, load_catalog()))
    file = (write or _DEFAULT_CONFIG).expanduser().absolute()
    keys_file, keys = _known_hosts_of(file), known_hosts(nodes, plan.record.host_keys).encode()
    machines = map(NodeLocation, nodes)
    paths = (with_proxy(machine, operator.fleet) if is_in_cloud(machine) else machine for machine in machines)
    config = ssh_config(paths, keys_file, interactive_login(operator, plan))
    untrusted = tuple(_untrusted_lines(plan, nodes))
    if write is None:
        return Result(config.splitlines(), notes=(*_unwritten_key_lines(file, keys), *untrusted))
    _check_overwrite(file)
    write_together({keys_file: keys, file: config.encode()})
    written = f"wrote {file} and {keys_file.name}; add at the top of ~/.ssh/config: Include {file}"
    return Result((), notes=(written, *untrusted))


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
