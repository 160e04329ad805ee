"""`bp queue`: the runs that wait in the cluster, each with its place in the line, and why it does not start yet."""

import time
from calendar import timegm
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any

from .cluster import Api, api_of
from .hub import BpError, Hub
from .records import moment, table

_QUEUE, _PRIORITY, _AFTER = "kueue.x-k8s.io/queue-name", "kueue.x-k8s.io/priority-class", "bedplate/after"
_WAITS, _RUN, _GPUS = "bedplate/waits", "bedplate/run", "nvidia.com/gpu"
_JOBSETS = "/apis/jobset.x-k8s.io/v1alpha2/namespaces/{}/jobsets"
_WORKLOADS = "/apis/kueue.x-k8s.io/v1beta2/namespaces/{}/workloads"
_LINE = "/apis/visibility.kueue.x-k8s.io/v1beta2/clusterqueues/fleet/pendingworkloads?limit=10000"
# The server of the line may be away, which the runs of the person do not need.
_PATIENCE, _LAST = 2.0, 1_000_000
Object = Mapping[str, Any]


def read_queue(hub: Hub, *, is_all: bool) -> Object:
    """Return the person's waiting runs by their place, those of all with `is_all`, and what is unknown of them."""
    if not hub.settings.cluster:
        return {"runs": [], "unknown": "This fleet has no cluster."}
    with closing(api_of(hub.settings)) as api:
        own = api.cluster.namespace
        jobsets = _waiting(api.call(_JOBSETS.format(own))["items"])
        line, unknown = _line(api)
        # The reason of most is their own.
        lacks = any(not {_WAITS, _AFTER} & item["metadata"].get("annotations", {}).keys() for item in jobsets)
        messages = _messages(api, "") if lacks else {}
    runs = [_run(item, line, messages) for item in jobsets]
    runs += [_foreign(entry) for (namespace, _), entry in line.items() if is_all and namespace != own]
    return {"runs": sorted(runs, key=lambda run: run["place"] or _LAST), "unknown": unknown}


def waiting_lines(api: Api, name: str) -> Sequence[str]:
    """Return in sentences where a JobSet of the person is in the line, and why; none if it waits in no queue."""
    item = api.call(f"{_JOBSETS.format(api.cluster.namespace)}/{name}")
    if not _waiting([item]):
        return []
    messages = _messages(api, f"?labelSelector=kueue.x-k8s.io/job-uid={item['metadata']['uid']}")
    run = _run(item, _line(api)[0], messages)
    place = f"place {run['place']} in the line, with priority {run['priority']}" if run["place"] else ""
    # The planner knows of machines, the queue of its quota.
    return [text for text in dict.fromkeys((place, run["why"], messages.get(_key(item)))) if text]


def queue_lines(document: Object) -> Iterator[str]:
    """Yield a table of waiting runs, and what it does not show."""
    rows: list[Sequence[str]] = [("PLACE", "RUN", "OWNER", "PRIORITY", "GPUS", "NODES", "SINCE", "WHY")]
    for run in document["runs"]:
        facts = (run[name] for name in ("place", "name", "owner", "priority", "gpus", "nodes"))
        rows.append((*("-" if fact is None else str(fact) for fact in facts), moment(run["since"]), run["why"]))
    yield from table(rows) if document["runs"] else ["No run waits in the cluster."]
    yield from [document["unknown"]] if document["unknown"] else []
    yield "`bp gpus` shows who waits for machines with SSH."


def _line(api: Api) -> tuple[Mapping[tuple[str, str], Any], str]:
    """Return the line by namespace and name of the work, and why it is unknown if Kueue does not say it."""
    try:
        return {_key(entry): entry for entry in api.call(_LINE, patience=_PATIENCE)["items"]}, ""
    except BpError as error:
        return {}, f"Places in the line are unknown: {error}."


def _waiting(jobsets: Sequence[Any]) -> Sequence[Any]:
    """Return the JobSets that wait in a queue."""
    held = [item for item in jobsets if item["spec"].get("suspend") and _QUEUE in item["metadata"].get("labels", {})]
    return [item for item in held if not item.get("status", {}).get("terminalState")]


def _key(item: Object) -> tuple[str, str]:
    """Return the namespace and the name of the work to which an entry or a Workload belongs."""
    meta = item["metadata"]
    return str(meta["namespace"]), next((str(owner["name"]) for owner in meta.get("ownerReferences", ())), meta["name"])


def _messages(api: Api, query: str) -> Mapping[tuple[str, str], str]:
    """Return why Kueue does not admit the person's work, in its words."""
    items = api.call(_WORKLOADS.format(api.cluster.namespace) + query)["items"]
    conditions = ((item, entry) for item in items for entry in item.get("status", {}).get("conditions", ()))
    return {
        _key(item): str(entry.get("message", ""))
        for item, entry in conditions
        if entry["type"] == "QuotaReserved" and entry["status"] == "False"
    }


def _run(item: Object, line: Mapping[tuple[str, str], Any], messages: Mapping[tuple[str, str], str]) -> Object:
    """Return the facts of a run of this person."""
    meta, nodes, gpus = item["metadata"], 0, 0
    labels, notes = meta["labels"], meta.get("annotations", {})
    for job in item["spec"]["replicatedJobs"]:
        spec = job["template"]["spec"]
        count = job.get("replicas", 1) * spec.get("parallelism", 1)
        limits = [part.get("resources", {}).get("limits", {}) for part in spec["template"]["spec"]["containers"]]
        nodes, gpus = nodes + count, gpus + count * sum(int(limit.get(_GPUS, 0)) for limit in limits)
    former, _, wish = notes.get(_AFTER, "").partition(":")
    after = f"It starts when {former} has ended{' well' if wish == 'ok' else ''}."
    why = notes.get(_WAITS) or messages.get(_key(item)) or "Its queue has not looked at it yet."
    name, priority = labels.get(_RUN, meta["name"]), labels.get(_PRIORITY, "normal")
    return _facts(
        meta, line.get(_key(item)), name, priority, gpus, nodes, after if labels[_QUEUE] == "held" and former else why
    )


def _foreign(entry: Object) -> Object:
    """Return the facts of a run of somebody else, of which only the line tells."""
    return _facts(entry["metadata"], entry, _key(entry)[1], entry["priority"], None, None, "-")


def _facts(meta: Object, entry: Any, *facts: object) -> Object:  # noqa: ANN401  of Kueue's line
    place = entry["positionInClusterQueue"] + 1 if entry else None
    # Milliseconds, as in records.
    since = timegm(time.strptime(meta["creationTimestamp"], "%Y-%m-%dT%H:%M:%SZ")) * 1000
    named = zip(("name", "priority", "gpus", "nodes", "why"), facts)
    return {"place": place, "owner": meta["namespace"], "since": since, **dict(named)}
