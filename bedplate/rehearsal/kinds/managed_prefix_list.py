"""Prefix lists: named lists of blocks for routes and rules."""

from collections.abc import Iterator
from typing import Any

from bedplate.rehearsal.kind import Complaint, Kind, Props, replaces, updates
from bedplate.rehearsal.kinds.cidr_blocks import block_fault
from bedplate.rehearsal.kinds.described import PREFIX_LIST as NOUN
from bedplate.rehearsal.kinds.described import described
from bedplate.rehearsal.kinds.ec2_tags import retag, tag
from bedplate.rehearsal.kinds.limits import Choice, Limit, Number, Text, beyond
from bedplate.rehearsal.simulation import Aws
from bedplate.rehearsal.unknown import holds_unknown, is_known

_VERSIONS = {"IPv4": 4, "IPv6": 6}
_LIMITS: dict[str, Limit] = {
    "addressFamily": Choice(tuple(_VERSIONS)),
    "maxEntries": Number(1, 1000),
    "name": Text(1, 255, r"(?!com\.amazonaws)[\s\S]*", "what does not begin with com.amazonaws"),
}


def _create(aws: Aws, inputs: Props) -> str:
    told = {"PrefixListName": inputs["name"], "AddressFamily": inputs["addressFamily"]}
    entries = [_entry(each) for each in inputs.get("entries") or []]
    made = aws.call("ec2", "create_managed_prefix_list", MaxEntries=inputs["maxEntries"], Entries=entries, **told)
    return tag(aws, made["PrefixList"]["PrefixListId"], inputs)


def _entry(entry: Props) -> dict[str, str]:
    told = {"Description": entry["description"]} if entry.get("description") else {}
    return {"Cidr": entry["cidr"], **told}


def _update(aws: Aws, ident: str, old: Props, new: Props) -> None:
    # The name goes along each time: moto would forget it.
    target = {"PrefixListId": ident, "PrefixListName": new["name"]}
    if old["maxEntries"] != new["maxEntries"] or old["name"] != new["name"]:
        aws.call("ec2", "modify_managed_prefix_list", MaxEntries=new["maxEntries"], **target)
    if new.get("entries") is not None:
        _bring_entries(aws, ident, target, [_entry(each) for each in new["entries"]])
    retag(aws, ident, old, new)


def _bring_entries(aws: Aws, ident: str, target: dict[str, str], wanted: list[dict[str, str]]) -> None:
    present = aws.call("ec2", "get_managed_prefix_list_entries", PrefixListId=ident)["Entries"]
    changes = {
        "RemoveEntries": [{"Cidr": each["Cidr"]} for each in present if each not in wanted],
        "AddEntries": [each for each in wanted if each not in present],
    }
    if any(changes.values()):
        version = described(aws, NOUN, ident)["Version"]
        aws.call("ec2", "modify_managed_prefix_list", CurrentVersion=version, **target, **changes)


def _read(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
    version = described(aws, NOUN, ident)["Version"]
    return {"arn": aws.arn("ec2", f"prefix-list/{ident}"), "ownerId": aws.account, "version": version}


def _delete(aws: Aws, ident: str, outputs: Props) -> None:
    aws.call("ec2", "delete_managed_prefix_list", PrefixListId=ident)


def _complaints(aws: Aws, inputs: Props) -> Iterator[Complaint]:
    yield from beyond(inputs, _LIMITS)
    entries = inputs.get("entries")
    known = [each for each in entries if not holds_unknown(each)] if isinstance(entries, list) else []
    most = inputs.get("maxEntries")
    if is_known(most) and len(known) > most:
        yield Complaint("entries", f"has {len(known)} entries, maxEntries allows {most}")
    blocks = [each["cidr"] for each in known]
    if len(set(blocks)) < len(blocks):
        yield Complaint("entries", "names a block twice")
    version = _VERSIONS.get(str(inputs.get("addressFamily")), 4)
    faults = ((number, block_fault(block, version)) for number, block in enumerate(blocks))
    yield from (Complaint(f"entries[{number}]", fault) for number, fault in faults if fault)


MANAGED_PREFIX_LIST = Kind(
    token="aws:ec2/managedPrefixList:ManagedPrefixList",
    inputs=updates("entries", "maxEntries", "name", "tags") | replaces("addressFamily"),
    computed=frozenset({"entries"}),
    sets=frozenset({"entries"}),
    moves=frozenset({"version"}),
    create=_create,
    read=_read,
    update=_update,
    delete=_delete,
    complaints=_complaints,
    note="moto does not change maxEntries of a list that exists",
)
