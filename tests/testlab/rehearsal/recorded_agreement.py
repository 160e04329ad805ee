"""The recorded steps and state of Pulumi's engine for the program in `agreement`, and the same of the rehearsal.

To record again, run the versions of the program in turn with the `pulumi` command. Keep for each version
`pulumi preview --json --show-sames` with PULUMI_ENABLE_STREAMING_JSON_PREVIEW=true as `preview-N.jsonl`,
`pulumi up --yes --skip-preview --json` as `up-N.jsonl` and `pulumi stack export` as `state-N.json`. Then
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
# Fields of a resource: the engine's names -> those of `bedplate graph`.
_FIELDS = {
    "parent": "parent",
    "dependencies": "dependencies",
    "propertyDependencies": "property_dependencies",
    "protect": "protect",
    "provider": "provider",
    "external": "external",
    "inputs": "inputs",
}
Resources = dict[str, dict[str, Any]]
# URN -> its steps: operation, keys that force a replacement, changed keys.
StepsByUrn = dict[str, list[list[Any]]]


def engine_resources(state: Mapping[str, Any]) -> Resources:
    """Return the resources of an exported state by URN."""
    return _resources_by_urn(
        {
            "urn": resource["urn"],
            "id": resource.get("id", ""),
            **{field: resource.get(name) for name, field in _FIELDS.items()},
        }
        for resource in state["deployment"]["resources"]
    )


def rehearsed_resources(snapshot: Snapshot) -> Resources:
    """Return the resources of a rehearsed stack by URN."""
    return _resources_by_urn(graph(snapshot.entries.values()))


def _resources_by_urn(resources: Iterable[Mapping[str, Any]]) -> Resources:
    rows = [{**row, "dependencies": sorted(row["dependencies"] or [])} for row in resources]
    names = {row["id"]: f"<{_short(row['urn'])}>" for row in rows if row["id"] and not row["external"]}
    plain = {_short(row["urn"]): {field: _plain(row[field], names) for field in _FIELDS.values()} for row in rows}
    return {urn: {key: value for key, value in sorted(row.items()) if value} for urn, row in sorted(plain.items())}


def _plain(value: Any, names: Mapping[str, str]) -> Any:  # noqa: ANN401  # any JSON value
    """Return a value without ids, automatic digits and secrets, which change with each run."""
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
    """Return a URN without the stack, or a provider reference without the id."""
    return urn.removeprefix(_STACK).rpartition("::")[0] if urn.count("::") == 4 else urn.removeprefix(_STACK)


def engine_steps(events: str) -> StepsByUrn:
    """Return the steps in an event stream of the engine by URN, without `same` steps."""
    story: StepsByUrn = {}
    for line in events.splitlines():
        event = json.loads(line).get("resourcePreEvent", {}) if line.startswith("{") else {}
        step = event.get("metadata", {})
        if step.get("op") not in (None, "same"):
            steps = story.setdefault(_short(step["urn"]), [])
            steps.append([step["op"], sorted(step.get("keys") or []), sorted(step.get("diffs") or [])])
    return dict(sorted(story.items()))


def rehearsed_steps(steps: Iterable[Step]) -> StepsByUrn:
    """Return the steps of a rehearsal by URN, without `same` steps."""
    story: StepsByUrn = {}
    for step in steps:
        if step.op is not Op.SAME:
            story.setdefault(_short(step.urn), []).append([step.op.value, sorted(step.replace_keys), sorted(step.keys)])
    return dict(sorted(story.items()))


def record(folder: Path, engine: str, provider: str) -> dict[str, Any]:
    """Return the record of all versions; preview and run must have the same steps."""
    state = json.loads((folder / "state-1.json").read_text(encoding="utf-8"))
    stories = {}
    for version in range(1, LAST + 1):
        events = [(folder / f"{part}-{version}.jsonl").read_text(encoding="utf-8") for part in ("preview", "up")]
        preview, run = map(engine_steps, events)
        assert preview == run, version
        stories[str(version)] = run
    return {"engine": engine, "provider": provider, "resources": engine_resources(state), "stories": stories}


if __name__ == "__main__":
    print(json.dumps(record(Path(sys.argv[1]), *sys.argv[2:]), indent=1))  # noqa: T201  # the output of a script
