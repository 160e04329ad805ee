"""The archive that gives a person access: VPN profile, ssh configuration, host keys, instructions, and `bp`.

The person needs neither a clone of bedplate nor access to AWS. Equal values make equal archives.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from io import BytesIO
from itertools import groupby
from pathlib import Path, PurePosixPath
from string import Template
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

from bedplate import __version__
from bedplate.catalog.catalog import Catalog
from bedplate.nodes.host_keys import fingerprint, known_hosts
from bedplate.nodes.ssh import FILE_HEADER, USER_CONFIG, Login, NodeLocation, ssh_config, unique_nodes
from bedplate.plan.fleet import Access, Account, FleetPlan
from bedplate.plan.nodes import NodePlan, NodeRole, find_node, permanent_nodes, pool_nodes
from bedplate.plan.published import fleet_document

_README, _README_OF_BP = (Path(__file__).with_name(f"{name}.txt") for name in ("invitation", "invitation-bp"))
_BEDPLATE = Path(__file__).parents[1]
_EXAMPLES, _SHIPPED = _BEDPLATE.with_name("examples"), frozenset((".ini", ".md", ".py", ".txt"))
# Also the agent, which bp gives to pods.
_BP = (
    "programs/__init__.py",
    "programs/connection.py",
    "programs/elements.py",
    "programs/program.py",
    "programs/study.py",
    "programs/agent/*.py",
    "programs/board/*.py",
    "programs/board/requirements.txt",
    "programs/bp/*.py",
    "programs/bp/jupyter.txt",
    "programs/search/*.py",
    "programs/search/requirements.txt",
)
# Python reads an archive behind any first lines.
_START = """import sys
if sys.version_info < (3, 9):
    sys.exit("error: bp needs Python 3.9 or newer")
from pathlib import Path
from programs.bp.__main__ import main
sys.exit(main(sys.argv[1:], Path(sys.argv[0])))
"""
_HOME, _SCRATCH = "/home", "/scratch"


@dataclass(frozen=True, slots=True)
class Invitation:
    """A person's access: the machines with an account of theirs, and a VPN profile that is valid until a moment.

    `certificate` is that of the hub; it is empty without a hub, or if it could not be read. `cluster` is how bp reaches
    the cluster; it is empty without one.
    """

    plan: FleetPlan
    person: Account
    machines: tuple[NodePlan, ...]
    profile: str
    until: datetime
    certificate: str = ""
    cluster: Mapping[str, object] = field(default_factory=dict)


def machines_of(plan: FleetPlan, name: str, catalog: Catalog) -> tuple[NodePlan, ...]:
    """Return the machines to which a person may log in."""
    nodes = (*permanent_nodes(plan), *pool_nodes(plan, catalog))
    return tuple(node for node in nodes if any(name == person.name for person in node.accounts.having(Access.LOGIN)))


def invitation_files(invitation: Invitation) -> Mapping[str, str | bytes]:
    """Return the files of the archive by path; it is unpacked in ~/.ssh, where ssh finds the host keys."""
    plan, nodes = invitation.plan, invitation.machines
    hubs = (find_node(plan, plan.hub.node, plan.catalog),) if plan.hub and invitation.certificate else ()
    folder = PurePosixPath(plan.name)
    keys_file, login = Path("~/.ssh") / folder / "known_hosts", Login(invitation.person.name)
    config = ssh_config(map(NodeLocation, nodes), keys_file, login)
    # bp writes there how ssh reaches a session.
    sessions = f"\nInclude ~/.ssh/{folder}/sessions/*" if hubs else ""
    files: dict[str, str | bytes] = {
        "README.txt": _readme(invitation),
        "config": config.replace(FILE_HEADER, f"# How {invitation.person.name} logs in to {plan.name}.{sessions}"),
        "known_hosts": known_hosts(unique_nodes((*nodes, *hubs)), plan.record.host_keys),
        f"{plan.name}.ovpn": invitation.profile,
    }
    for hub in hubs:
        files["bp"], files["bp.json"] = bp_program(), _bp_settings(invitation, hub)
        files["bp.config"] = ssh_config([NodeLocation(hub)], keys_file, login) + USER_CONFIG
        programs = sorted(path for path in _EXAMPLES.glob("*/[a-zA-Z]*") if path.suffix in _SHIPPED)
        files.update({f"examples/{path.relative_to(_EXAMPLES)}": path.read_text("utf-8") for path in programs})
    return {str(folder / name): content for name, content in files.items()}


def bp_program() -> bytes:
    """Return the program `bp` in one file, as zipapp(1) makes it: an archive that starts with the name of Python."""
    buffer = BytesIO()
    buffer.write(b"#!/usr/bin/env python3\n")
    with ZipFile(buffer, "a", ZIP_DEFLATED) as archive:
        archive.writestr(_entry("__main__.py", 0o100644), _START)
        for path in sorted(path for pattern in _BP for path in _BEDPLATE.glob(pattern)):
            archive.writestr(_entry(path.relative_to(_BEDPLATE).as_posix(), 0o100644), path.read_bytes())
    return buffer.getvalue()


def _bp_settings(invitation: Invitation, hub: NodePlan) -> str:
    plan = invitation.plan
    values = {"fleet": plan.name, "person": invitation.person.name, "node": hub.full_name, "version": __version__}
    host = plan.hub.host if plan.hub else ""
    values |= {"host": host, "address": str(hub.address), "certificate": invitation.certificate}
    return json.dumps({**values, "cluster": invitation.cluster, "document": fleet_document(plan)}, indent=2) + "\n"


def pack(files: Mapping[str, str | bytes]) -> bytes:
    """Return a ZIP archive of texts, programs and their folders, which only their owner can use when unpacked."""
    buffer = BytesIO()
    with ZipFile(buffer, "w", ZIP_DEFLATED) as archive:
        for folder in sorted({f"{folder}" for path in files for folder in PurePosixPath(path).parents if folder.name}):
            archive.writestr(_entry(f"{folder}/", 0o40700), b"")
        for path, content in sorted(files.items()):
            archive.writestr(_entry(path, 0o100700 if isinstance(content, bytes) else 0o100600), content)
    return buffer.getvalue()


def _entry(path: str, mode: int) -> ZipInfo:
    """Return an entry with a fixed date and a Unix mode, in the upper half of its attributes."""
    entry = ZipInfo(path)
    entry.compress_type = ZIP_DEFLATED
    entry.external_attr = mode << 16
    return entry


def _readme(invitation: Invitation) -> str:
    plan, person = invitation.plan, invitation.person
    work = tuple(node for node in invitation.machines if NodeRole.WORKBENCH in node.roles)
    runs = Template(_README_OF_BP.read_text(encoding="utf-8")).substitute(fleet=plan.name)
    return Template(_README.read_text(encoding="utf-8")).substitute(
        runs=runs if invitation.certificate else "",
        problems=6 if invitation.certificate else 5,
        fleet=plan.name,
        name=person.name,
        owner=plan.owner,
        until=f"{invitation.until:%Y-%m-%d}",
        keys=_indented(f"{fingerprint(key)} {key.partition(' ')[2].partition(' ')[2]}".rstrip() for key in person.keys),
        machines=_indented(_machine_lines(work)),
        folders=_indented(_folder_lines(work, person.name)),
    )


def _indented(lines: Iterable[str]) -> str:
    return "\n".join(f"    {line}" for line in lines) or "    none"


def _machine_lines(nodes: Iterable[NodePlan]) -> Iterator[str]:
    """Yield a line for each machine, or for all machines of a group in a region."""
    for _, group in groupby(nodes, key=lambda node: (node.host.rpartition("-")[0] or node.host, node.place, node.gpus)):
        members = tuple(group)
        names = " to ".join(dict.fromkeys((members[0].name, members[-1].name)))
        gpus = members[0].gpus
        yield f"{names} ({gpus.count} x {gpus.model})" if gpus else names


def _folder_lines(nodes: Iterable[NodePlan], name: str) -> Iterator[str]:
    """Yield a line for each shared folder of a server, with the places of its machines, and for the local disks."""
    places: dict[tuple[str, str], set[str]] = {}
    for node in nodes:
        for mount in node.mounts:
            places.setdefault((mount.path, mount.server), set()).add(node.place)
    for (path, _), of_server in sorted(places.items()):
        what = f"{path}/{name}: your files" if path == _HOME else f"{path}: data of the fleet"
        yield f"{what}, the same on all machines in {', '.join(sorted(of_server))}"
    yield f"{_SCRATCH}/{name}: fast local disks for temporary files; they are lost when a machine ends"
