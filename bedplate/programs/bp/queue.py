"""`bp queue`: the runs that wait in the cluster, each with its place in the line, and why it does not start yet."""

import time
from calendar import timegm
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from typing import Any

from .cluster import Api, api_of, no_queue
from .hub import BpError, Hub
from .jobset import AFTER, API_VERSION, HELD, LABEL, PRIORITY, QUEUE
from .records import moment, table

_WAITS, _GPUS = "bedplate/waits", "nvidia.com/gpu"
_JOBSETS = f"/apis/{API_VERSION}/namespaces/{{}}/jobsets"
_WORKLOADS = "/apis/kueue.x-k8s.io/v1beta2/namespaces/{}/workloads"
_LINE = "/apis/visibility.kueue.x-k8s.io/v1beta2/{}/pendingworkloads?limit=10000"
# The server of the line may be away, and a run may start while it is read.
_PATIENCE, _ABSENT, _AT_ONCE = 2.0, 404, 8
Object = Mapping[str, Any]


def read_queue(hub: Hub, count: int, *, is_all: bool) -> Object:
    """Return the person's waiting runs by their place, or those of all, and what is unknown; `count` limits both."""
    if not hub.settings.cluster:
        return {"runs": [], "more": 0, "unknown": "This fleet has no cluster."}
    with closing(api_of(hub.settings)) as api:
        own = api.cluster.namespace
        line, unknown = _line(api, "clusterqueues/fleet")
        # Kueue has no place for what is held. One list of all runs takes seconds if there are hundreds.
        query = "" if unknown else f"?labelSelector={QUEUE}={HELD}"
        try:
            others = [item for item in api.call(_JOBSETS.format(own) + query)["items"] if _is_waiting(item)]
        except BpError as error:
            raise no_queue() if error.status == _ABSENT else error from None
        entries = [entry for (namespace, _), entry in line.items() if is_all or namespace == own]
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            found = pool.map(partial(_find, api), entries[:count])
            runs = [run for run in found if run] + [_run(item, None) for item in others[:count]]
    more = max(len(entries) - count, 0) + max(len(others) - count, 0)
    return {"runs": runs, "more": more, "unknown": unknown}


def waiting_lines(api: Api, name: str) -> Sequence[str]:
    """Return in sentences where a JobSet of the person is in the line, and why; none if it waits in no queue."""
    own = api.cluster.namespace
    item = api.call(f"{_JOBSETS.format(own)}/{name}")
    if not _is_waiting(item):
        return []
    entry = _line(api, f"namespaces/{own}/localqueues/{item['metadata']['labels'][QUEUE]}")[0].get((own, name))
    said = _message(api, entry) if entry else ""
    if not entry and item["metadata"]["labels"][QUEUE] != HELD:
        # Kueue has words for what has no place, too, such as a run whose pods did not get ready.
        query = f"?labelSelector=kueue.x-k8s.io/job-uid={item['metadata']['uid']}"
        said = " ".join(map(_said, api.call(_WORKLOADS.format(own) + query)["items"]))
    run = _run(item, entry, said)
    place = f"place {run['place']} in the line, with priority {run['priority']}" if entry else ""
    # The planner knows of machines, the queue of its quota.
    return [text for text in dict.fromkeys((place, run["why"], said)) if text]


def queue_lines(document: Object) -> Iterator[str]:
    """Yield a table of waiting runs, and what it does not show."""
    rows: list[Sequence[str]] = [("PLACE", "RUN", "OWNER", "PRIORITY", "GPUS", "NODES", "SINCE", "WHY")]
    for run in document["runs"]:
        facts = (run[name] for name in ("place", "name", "owner", "priority", "gpus", "nodes"))
        rows.append((*("-" if fact is None else str(fact) for fact in facts), moment(run["since"]), run["why"]))
    yield from table(rows) if document["runs"] else ["No run waits in the cluster."]
    if more := document["more"]:
        yield f"{more} more wait: `bp queue -n {len(document['runs']) + more}` shows them, too."
    if document["unknown"]:
        yield document["unknown"]
    yield "`bp gpus` shows who waits for machines with SSH."


def _line(api: Api, queue: str) -> tuple[Mapping[tuple[str, str], Any], str]:
    """Return the line of a queue by namespace and name of the work, and why it is unknown if Kueue does not say it."""
    try:
        entries = api.call(_LINE.format(queue), patience=_PATIENCE)["items"]
    except BpError as error:
        return {}, f"Places in the line are unknown: {error}."
    return {(entry["metadata"]["namespace"], _owner(entry)): entry for entry in entries}, ""


def _owner(entry: Object) -> str:
    """Return the name of the work to which an entry of the line belongs."""
    meta = entry["metadata"]
    return next((str(owner["name"]) for owner in meta.get("ownerReferences", ())), str(meta["name"]))


def _is_waiting(item: Object) -> bool:
    is_queued = bool(item["spec"].get("suspend")) and QUEUE in item["metadata"].get("labels", {})
    return is_queued and not item.get("status", {}).get("terminalState")


def _find(api: Api, entry: Object) -> "Object | None":
    """Return the facts of a run in the line; None if it is deleted. Only the line tells of runs of others."""
    meta, own = entry["metadata"], api.cluster.namespace
    if meta["namespace"] != own:
        return _facts(meta, entry, _owner(entry), entry["priority"], None, None, "-")
    try:
        item = api.call(f"{_JOBSETS.format(own)}/{_owner(entry)}")
        return _run(item, entry, "" if _WAITS in item["metadata"].get("annotations", {}) else _message(api, entry))
    except BpError as error:
        if error.status != _ABSENT:
            raise
        return None


def _message(api: Api, entry: Object) -> str:
    """Return why Kueue does not admit the work of an entry, in its words; empty before it has looked."""
    return _said(api.call(f"{_WORKLOADS.format(entry['metadata']['namespace'])}/{entry['metadata']['name']}"))


def _said(workload: Object) -> str:
    """Return why Kueue does not admit a Workload; empty before it has looked."""
    conditions = {item["type"]: item for item in workload.get("status", {}).get("conditions", ())}
    reserved = conditions.get("QuotaReserved", {})
    return str(reserved.get("message", "")) if reserved.get("status") == "False" else ""


def _run(item: Object, entry: "Object | None", said: str = "") -> Object:
    """Return the facts of a run of this person, with what Kueue has said."""
    meta, nodes, gpus = item["metadata"], 0, 0
    labels, notes = meta["labels"], meta.get("annotations", {})
    for job in item["spec"]["replicatedJobs"]:
        spec = job["template"]["spec"]
        count = job.get("replicas", 1) * spec.get("parallelism", 1)
        limits = [part.get("resources", {}).get("limits", {}) for part in spec["template"]["spec"]["containers"]]
        nodes, gpus = nodes + count, gpus + count * sum(int(limit.get(_GPUS, 0)) for limit in limits)
    former, _, wish = notes.get(AFTER, "").partition(":")
    why = notes.get(_WAITS) or said or "Its queue has not looked at it yet."
    if labels[QUEUE] == HELD:
        by_hand = f"It is held until its label {QUEUE} is `default`."
        why = f"It starts when {former} has ended{' well' if wish == 'ok' else ''}." if former else by_hand
    return _facts(meta, entry, labels.get(LABEL, meta["name"]), labels.get(PRIORITY, "normal"), gpus, nodes, why)


def _facts(meta: Object, entry: "Object | None", *facts: object) -> Object:
    place = entry["positionInClusterQueue"] + 1 if entry else None
    # Milliseconds, as in records.
    since = timegm(time.strptime(meta["creationTimestamp"], "%Y-%m-%dT%H:%M:%SZ")) * 1000
    named = zip(("name", "priority", "gpus", "nodes", "why"), facts)
    return {"place": place, "owner": meta["namespace"], "since": since, **dict(named)}
