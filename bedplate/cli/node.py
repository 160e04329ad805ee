"""The commands about machines that do not log in to any: node list, bootstrap, ssh-config, and the folder of a site."""

import shlex
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from bedplate.account.client import failure_lines
from bedplate.account.machines import read_machines, read_node_statuses
from bedplate.bundle import RingState, Source, build_bundle, pack, targets, user_cache
from bedplate.bundle import Target as Part
from bedplate.catalog import load_catalog
from bedplate.cli.bundle import Pythons
from bedplate.cli.fleet import open_account, plan_of
from bedplate.cli.login import LoginName, interactive_login, is_in_cloud, with_proxy
from bedplate.cli.output import (
    DEFAULT_FLEET,
    FleetOption,
    Identity,
    Json,
    check_files_exist,
    notify,
    show,
    show_document,
)
from bedplate.errors import InputError, PartialError
from bedplate.files import os_errors_as_machine_errors, write_together
from bedplate.foreign import one_line, parse_json
from bedplate.nodes.apply import NodeError, NodeErrorKind, Target
from bedplate.nodes.bootstrap import site_script
from bedplate.nodes.host_keys import known_hosts
from bedplate.nodes.ssh import FILE_HEADER, NodeLocation, nodes_by_name, ssh_config
from bedplate.plan import FleetPlan
from bedplate.plan.node_document import node_document as plan_document
from bedplate.plan.nodes import NodePlan, permanent_nodes, pool_nodes
from bedplate.plan.planner import baked_image
from bedplate.report.nodes import LiveFacts, machine_document, machine_lines, node_document, node_lines
from bedplate.spec.groups import Ring

SOURCE = "/var/lib/bedplate/source"
"""The folder on a machine that got it over SSH."""
# cloud-init reads a disk with this label, or the seed in the image, and copies only these two files from it.
_LABEL, _SEED, _MOUNT = "CIDATA", "/var/lib/cloud/seed/nocloud", "/run/bedplate-seed"
_FACTS = "import json, os, sys; print(json.dumps(['%d.%d' % sys.version_info[:2], os.uname().machine]))"
_SECONDS = 600


def script_name(node: NodePlan) -> str:
    """Return the name of the bootstrap script in the folder."""
    return f"{node.host}.sh"


def site_files(node: NodePlan, parts: tuple[Part, ...]) -> Mapping[str, bytes]:
    """Return the files of the folder, with the wheels of these targets. Raises MachineError."""
    cache = user_cache()
    bundle = build_bundle(cache, parts)
    # A machine refuses a lower sequence than it has accepted.
    ring = RingState(bundle.hash, int(time.time()))
    texts = {
        script_name(node): site_script(node),
        f"rings/{Ring.STABLE.value}.json": f"{ring.text}\n",
        f"bundles/{bundle.hash}.json": bundle.text,
        f"nodes/{node.name}.json": plan_document(node),
        "meta-data": f"instance-id: {node.name}\nlocal-hostname: {node.host}\n",
        "user-data": user_data(node),
    }
    return {name: text.encode() for name, text in texts.items()} | {
        f"blobs/{name}": cache.read(name) for name in bundle.blobs
    }


def user_data(node: NodePlan) -> str:
    """Return user data that runs the bootstrap of the disk or seed from which cloud-init has it."""
    script = shlex.quote(script_name(node))
    return f"""#!/bin/bash
set -eu
source={_SEED}
if device=$(blkid --label {_LABEL} || blkid --label {_LABEL.lower()}); then
  source={_MOUNT}
  mkdir -p $source
  mountpoint -q $source || mount --read-only "$device" $source
fi
exec bash $source/{script}
"""


def write_folder(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write the files into a new or empty folder. Raises InputError for another, and MachineError."""
    with os_errors_as_machine_errors(folder, "write"):
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise InputError("is not an empty folder", where=str(folder), fix="name a new folder")
        for name, data in files.items():
            file = folder / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(data)


def push_folder(target: Target) -> str:
    """Send the folder to a machine of a site; return its bootstrap script there. Raises NodeError, and MachineError."""
    try:
        python, architecture = parse_json(_ssh(target, f"python3 -c {shlex.quote(_FACTS)}"))
    except ValueError:
        raise NodeError(NodeErrorKind.FAILED, "cannot read its version of Python", "install python3 on it") from None
    with tempfile.TemporaryDirectory(prefix="bedplate-") as name:
        folder, files = Path(name), site_files(target.node, (Part(python, architecture),))
        write_folder(folder, files)
        archive = pack(Source(folder, tuple(files)))
    unpack = f"rm -rf {SOURCE} && install -d -m 0700 {SOURCE} && tar -xz -C {SOURCE}"
    _ssh(target, f"sudo -n sh -c {shlex.quote(unpack)}", archive)
    return f"{SOURCE}/{script_name(target.node)}"


def _ssh(target: Target, command: str, data: bytes = b"") -> str:
    """Run a command on a machine, with data on stdin; return what it prints. Raises NodeError."""
    try:
        done = subprocess.run(  # noqa: S603  the command of an operator's ssh
            (*target.argv, command), input=data, capture_output=True, timeout=_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        raise NodeError(NodeErrorKind.CUT, f"no answer within {_SECONDS} s", "run the command again") from None
    if done.returncode:
        lines = done.stderr.decode(errors="replace").strip().splitlines() or ["no error output"]
        words = one_line(lines[-1])
        raise NodeError(NodeErrorKind.UNREACHED, words, f"try `bedplate ssh {target.node.name}`")
    return done.stdout.decode(errors="replace")


def list_nodes(
    *,
    live: Annotated[bool, typer.Option("--live", help="Ask AWS for the running machines of groups instead.")] = False,
    fleet: FleetOption = DEFAULT_FLEET,
    json: Json = False,
) -> int:
    """Show the fleet's machines."""
    plan = plan_of(fleet)
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
    (node,) = nodes_by_name(plan_of(fleet), [name], load_catalog())
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
    plan = plan_of(fleet)
    check_files_exist(identity)
    nodes = (*permanent_nodes(plan), *pool_nodes(plan, load_catalog()))
    file = (write or _DEFAULT_CONFIG).expanduser().absolute()
    keys_file, keys = _known_hosts_of(file), known_hosts(nodes, plan.record.host_keys).encode()
    machines = map(NodeLocation, nodes)
    paths = (with_proxy(machine, fleet) if is_in_cloud(machine) else machine for machine in machines)
    config = ssh_config(paths, keys_file, interactive_login(plan, user, identity))
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
