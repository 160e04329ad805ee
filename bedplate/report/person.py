"""Reports of `person invite` and `person remove`: the archive, remaining access, and the next commands."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from bedplate.errors import BedplateError
from bedplate.load.yaml import Node
from bedplate.nodes.invitation import Invitation
from bedplate.plan import FleetPlan
from bedplate.report.columns import counted

_ADMINISTRATORS = "next: `bedplate up`: machines that start later read the administrators from AWS"


def invited_lines(invitation: Invitation, file: Path) -> Iterator[str]:
    """Yield the content of the archive, and how to send it to the person."""
    plan, name = invitation.plan, invitation.person.name
    trusted = sum(bool(plan.record.host_keys.get(node.name)) for node in invitation.machines)
    bp = ", bp with its settings" if invitation.certificate else ""
    yield f"wrote {file}: VPN profile, ssh configuration, {counted(trusted, 'host key')}, README.txt{bp}"
    yield f"next: give it to {name} by an encrypted channel: it contains a private key"
    yield "next: after `bedplate node trust` of a new machine, run this command again and send the new archive"
    if invitation.person.admin:
        yield _ADMINISTRATORS


def documents_line(plan: FleetPlan) -> Iterator[str]:
    """Yield the command that gives machines of groups the changed accounts, unless the fleet has no group."""
    if plan.pools:
        yield "next: `bedplate up` or `bedplate bundle push`: machines of groups apply stored accounts every hour"


def admission_line(name: str, groups: Sequence[str], option: str) -> str:
    """Return the commands that admit the person; `option` is the one that names the fleet file."""
    words = "".join(f" --group {group}" for group in groups)
    apply = f"bedplate node apply --all{words} --role people{option}"
    return f"next: `bedplate person invite {name} --apply{option}`, or `bedplate vpn sync{option}` and `{apply}`"


def unfinished_lines(failures: Sequence[BedplateError], command: str) -> Iterator[str]:
    """Yield each failure with its fix, and the command that continues."""
    for error in failures:
        yield f"not done: {error.what}"
        if error.fix:
            yield f"  fix  {error.fix}"
    if failures:
        yield f"then run `{command}` again"


def entry_of(nodes: Mapping[str, Node], key: str, lines: Sequence[str]) -> str:
    """Return the lines of a key in the fleet file, such as `line 92` or `lines 92 to 95`."""
    first = nodes[key].key_place.line
    others = (node.key_place.line for name, node in nodes.items() if not f"{name}.".startswith(f"{key}."))
    end = min((line for line in others if line > first), default=len(lines) + 1)
    last = max(number for number in range(first, end) if number == first or _is_content(lines[number - 1]))
    if not lines[first - 1].lstrip().startswith(key.rpartition(".")[2]):
        return f"the entry in line {first}"
    return f"line {first}" if first == last else f"lines {first} to {last}"


def _is_content(line: str) -> bool:
    return bool(line.strip()) and not line.lstrip().startswith("#")


def kept_lines(plan: FleetPlan, name: str) -> Iterator[str]:
    """Yield the access that no command removes."""
    uid = plan.record.people.get(name)
    owner = f"{name} (user id {uid})" if uid else name
    yield "not removed by bedplate:"
    yield f"  files of {owner} in /home and other stores: copy or delete them"
    yield f"  access of {name} to AWS, to Pulumi's backend and to Git"
    yield "  sudo rights on machines that start later, and the AWS role of their pods: `bedplate up`"
    yield "  secrets that they know, such as PULUMI_CONFIG_PASSPHRASE or a copy of fleet.pki/keys: replace them"
    workers = dict.fromkeys(pool.group for pool in plan.pools if pool.use.is_worker)
    if workers:
        yield f"  running machines of {', '.join(workers)}, if roles were applied to them: terminate them"
