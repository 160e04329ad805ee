"""What the real engine did with the program of `programs_agreement`, and the same of the rehearsal, in one form.

To record anew, run the program's versions in turn with the `pulumi` command, and keep for each
`pulumi preview --json --show-sames` with PULUMI_ENABLE_STREAMING_JSON_PREVIEW=true as `preview-N.jsonl`,
`pulumi up --yes --skip-preview --json` as `up-N.jsonl` and `pulumi stack export` as `state-N.json`; then
`python -m tests.testlab.rehearsal.recorded_agreement FOLDER ENGINE PROVIDER` prints the record.
"""

import json
import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from bedplate.rehearsal.stack import graph
from bedplate.rehearsal.state import Op, Snapshot, Step
from tests.testlab.rehearsal.agreement import LAST

RECORD = Path(__file__).parents[2] / "data" / "engine" / "agreement.json"
_STACK = "urn:pulumi:t::lab::"
_SECRET_MARK = "4dabf18193072939515e22adb298388d"  # noqa: S105  # the wire format's constant
_AUTOMATIC = re.compile(r"-[0-9a-f]{7}$")
# What a resource says of itself, by the engine's names and by the graph's.
_FIELDS = {
    "parent": "parent",
    "dependencies": "dependencies",
    "propertyDependencies": "property_dependencies",
    "protect": "protect",
    "provider": "provider",
    "external": "external",
    "inputs": "inputs",
}
Portrait = dict[str, dict[str, Any]]
# For each URN, what became of it: operation, keys that force a replacement, keys that changed.
Story = dict[str, list[list[Any]]]


def engine_portrait(state: Mapping[str, Any]) -> Portrait:
    """Return the resources of an exported state by URN."""
    found = state["deployment"]["resources"]
    rows = [{ours: one.get(theirs) for theirs, ours in _FIELDS.items()} for one in found]
    return _portrait(
        [{**row, "urn": one["urn"], "id": one.get("id", "")} for row, one in zip(rows, found, strict=True)]
    )


def rehearsed_portrait(snapshot: Snapshot) -> Portrait:
    """Return the resources of a rehearsed stack by URN."""
    return _portrait(graph(snapshot.entries.values()))


def _portrait(found: Iterable[Mapping[str, Any]]) -> Portrait:
    rows = [{**row, "dependencies": sorted(row["dependencies"] or [])} for row in found]
    names = {row["id"]: f"<{_short(row['urn'])}>" for row in rows if row["id"] and not row["external"]}
    plain = {_short(row["urn"]): {ours: _plain(row[ours], names) for ours in _FIELDS.values()} for row in rows}
    return {urn: {key: value for key, value in sorted(one.items()) if value} for urn, one in sorted(plain.items())}


def _plain(value: Any, names: Mapping[str, str]) -> Any:  # noqa: ANN401  # any JSON value
    """Return a value without ids, automatic digits and secrets, which differ from run to run."""
    match value:
        case dict():
            if _SECRET_MARK in value:
                return "[secret]"
            kept = {key: item for key, item in value.items() if item not in (None, [], {}) and not key.startswith("__")}
            return {key: _plain(item, names) for key, item in sorted(kept.items())}
        case list():
            return [_plain(item, names) for item in value]
        case str():
            return _short(names.get(value, _AUTOMATIC.sub("-#", value)))
        case _:
            return value


def _short(urn: str) -> str:
    """Return a URN without the stack, or a provider's reference without the id."""
    return urn.removeprefix(_STACK).rpartition("::")[0] if urn.count("::") == 4 else urn.removeprefix(_STACK)


def engine_story(events: str) -> Story:
    """Return what an event stream of the engine says of each resource that it changed or read."""
    story: Story = {}
    for line in events.splitlines():
        told = json.loads(line).get("resourcePreEvent", {}) if line.startswith("{") else {}
        step = told.get("metadata", {})
        if step.get("op") not in (None, "same"):
            steps = story.setdefault(_short(step["urn"]), [])
            steps.append([step["op"], sorted(step.get("keys") or []), sorted(step.get("diffs") or [])])
    return dict(sorted(story.items()))


def rehearsed_story(steps: Iterable[Step]) -> Story:
    """Return what the steps of a rehearsal say of each resource that they changed or read."""
    story: Story = {}
    for step in steps:
        if step.op is not Op.SAME:
            story.setdefault(_short(step.urn), []).append([step.op.value, sorted(step.replace_keys), sorted(step.keys)])
    return dict(sorted(story.items()))


def record(folder: Path, engine: str, provider: str) -> dict[str, Any]:
    """Return the record of all versions; preview and run must have told the same."""
    state = json.loads((folder / "state-1.json").read_text(encoding="utf-8"))
    stories = {}
    for version in range(1, LAST + 1):
        told = [(folder / f"{part}-{version}.jsonl").read_text(encoding="utf-8") for part in ("preview", "up")]
        planned, done = map(engine_story, told)
        assert planned == done, version
        stories[str(version)] = done
    return {"engine": engine, "provider": provider, "resources": engine_portrait(state), "stories": stories}


if __name__ == "__main__":
    print(json.dumps(record(Path(sys.argv[1]), *sys.argv[2:]), indent=1))  # noqa: T201  # a script's answer
