"""IAM policy documents: the JSON text that the provider makes of statements, to the character."""

import json
from collections.abc import Iterable, Mapping
from typing import Any
from zlib import crc32

from bedplate.rehearsal.kind import Props
from bedplate.rehearsal.lookups.lookup import Lookup
from bedplate.rehearsal.refusal import Refusal
from bedplate.rehearsal.simulation import Aws

# Go's encoder writes these so, for the sake of browsers.
_ESCAPES = {"&": r"\u0026", "<": r"\u003c", ">": r"\u003e"}
# The members of a statement in the provider's order, and the lists among its arguments.
_LISTS = {"actions": "Action", "notActions": "NotAction", "resources": "Resource", "notResources": "NotResource"}
_PRINCIPALS = {"principals": "Principal", "notPrincipals": "NotPrincipal"}


def _words(values: Iterable[str]) -> str | list[str]:
    """Return one word by itself and several from last to first, with `&{` for a variable made `${`."""
    found = sorted((value.replace("&{", "${") for value in values), reverse=True)
    return found[0] if len(found) == 1 else found


def _principals(blocks: Iterable[Mapping[str, Any]]) -> str | dict[str, str | list[str]]:
    found: dict[str, list[str]] = {}
    for block in blocks:
        found.setdefault(block["type"], []).extend(block["identifiers"])
    if found == {"*": ["*"]}:
        return "*"
    return {kind: _words(found[kind]) for kind in sorted(found)}


def _conditions(blocks: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, str | list[str]]]:
    found: dict[str, dict[str, list[str]]] = {}
    for block in blocks:
        found.setdefault(block["test"], {}).setdefault(block["variable"], []).extend(block["values"])
    return {test: {name: _words(values) for name, values in sorted(one.items())} for test, one in sorted(found.items())}


def _statement(block: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {"Sid": block["sid"]} if block.get("sid") else {}
    found["Effect"] = block.get("effect") or "Allow"
    found |= {name: _words(block[key]) for key, name in _LISTS.items() if block.get(key)}
    found |= {name: _principals(block[key]) for key, name in _PRINCIPALS.items() if block.get(key)}
    return found | ({"Condition": _conditions(block["conditions"])} if block.get("conditions") else {})


def _parts(args: Props, single: str, several: str) -> list[dict[str, Any]]:
    """Return the statements of other documents that the program gave as text."""
    texts = [args.get(single), *(args.get(several) or [])]
    documents = [json.loads(text) for text in texts if text]
    given = [document.get("Statement", []) for document in documents]
    return [one for some in given for one in (some if isinstance(some, list) else [some])]


def _overridden(first: list[dict[str, Any]], second: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return both, where a statement of the second stands in the place of one of the same Sid."""
    by_sid = {one["Sid"]: one for one in second if one.get("Sid")}
    held = {one.get("Sid") for one in first}
    kept = [by_sid.get(one.get("Sid", ""), one) for one in first]
    return [*kept, *(one for one in second if one.get("Sid") not in held or not one.get("Sid"))]


def _refuse_twins(statements: Iterable[Mapping[str, Any]]) -> None:
    names = [one["Sid"] for one in statements if one.get("Sid")]
    for name in names:
        if names.count(name) > 1:
            raise Refusal("InvalidInput", f"duplicate Sid ({name})", key="statements")


def _text(document: Mapping[str, Any], indent: int | None) -> str:
    separators = (",", ":") if indent is None else (",", ": ")
    found = json.dumps(document, indent=indent, separators=separators, ensure_ascii=False)
    for sign, escape in _ESCAPES.items():
        found = found.replace(sign, escape)
    return found


def _document(aws: Aws, args: Props) -> dict[str, Any]:
    own = [_statement(block) for block in args.get("statements") or []]
    _refuse_twins(own)
    sources = _parts(args, "sourceJson", "sourcePolicyDocuments")
    _refuse_twins(sources)
    statements = _overridden(_overridden(sources, own), _parts(args, "overrideJson", "overridePolicyDocuments"))
    version = args.get("version") or "2012-10-17"
    named = {"Id": args["policyId"]} if args.get("policyId") else {}
    document = {"Version": version, **named, **({"Statement": statements} if statements else {})}
    text = _text(document, 2)
    return {
        "id": str(crc32(text.encode())),
        "json": text,
        "minifiedJson": _text(document, None),
        "version": version,
    }


POLICY_DOCUMENT = Lookup(
    "aws:iam/getPolicyDocument:getPolicyDocument",
    frozenset({"overrideJson", "overridePolicyDocuments", "policyId", "sourceJson", "sourcePolicyDocuments"})
    | {"statements", "version"},
    _document,
)
