"""The work that waits in queues of Kueue, as the pods that it will have, and what becomes of runs that follow others.

Kueue keeps work suspended, without pods, until nodes have room for all of it: without this, no machine would start.
Source: Kueue 0.19.1, apis/kueue/v1beta2; JobSet 0.12.0, api/jobset/v1alpha2.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import count
from typing import Any, cast

from lightkube.resources.core_v1 import Pod

from bedplate.kubernetes.pods import JOBSET_NAME, has_ended, waits_for_machine
from bedplate.kubernetes.queues import HELD

Object = Mapping[str, Any]
QUEUE_NAME = "kueue.x-k8s.io/queue-name"
"""Label: the queue of work."""
WAITS = "bedplate/waits"
"""Annotation of a JobSet: why it waits, in sentences."""
AFTER = "bedplate/after"
"""Annotation of a JobSet in the queue `held`: the run that must end first, as `ID:any`, or well, as `ID:ok`."""
RUN = "bedplate/run"
_SET = "jobset.sigs.k8s.io/replicatedjob-name"
_JOB = "batch.kubernetes.io/job-name"
# Pods at once, by the quota of a namespace: what one person cannot have costs nobody's controller memory and time.
_MOST = 500
# Why Kueue never admits work, however many nodes there are. The first is that of 0.19 by default, for several others.
_REFUSALS = frozenset(("Inadmissible", "Misconfigured", "NoMatchingFlavor", "ExceedsMaxQuota", "Suspended", "OnHold"))


def queued_pods(workloads: Iterable[Object], pods: Iterable[Pod]) -> Iterator[tuple[Pod, str]]:
    """Yield the pods that work lacks, and why Kueue never admits it, which is empty for most.

    Work in the queue `held`, and what has ended or is being deleted, lacks none. In a namespace, the oldest is first.
    """
    present, asked = Counter(key for pod in pods if _is_counted(pod) for key in _keys(pod)), Counter[str]()
    for workload in sorted(workloads, key=lambda item: str(item["metadata"].get("creationTimestamp"))):
        meta, spec, status = workload["metadata"], workload["spec"], workload.get("status") or {}
        states = {item["type"]: item for item in status.get("conditions") or ()}
        is_over = meta.get("deletionTimestamp") or states.get("Finished", {}).get("status") == "True"
        owners = [owner for owner in meta.get("ownerReferences") or () if owner["kind"] in {"JobSet", "Job"}]
        if is_over or not owners or spec.get("active") is False or spec.get("queueName") == HELD:
            continue
        size = sum(part.get("count", 1) for part in spec["podSets"])
        if asked[meta["namespace"]] + size > _MOST:
            continue
        asked[meta["namespace"]] += size
        reserved = states.get("QuotaReserved", {})
        message = str(reserved.get("message", "")) if reserved.get("status") == "False" else ""
        refusal = f"its queue does not admit it: {message}" if message and reserved["reason"] in _REFUSALS else ""
        done = {item["name"]: item["count"] for item in status.get("reclaimablePods") or ()}
        numbers = count()
        for part in spec["podSets"]:
            name, (owner, *_) = part.get("name", "main"), owners
            key = (str(meta["namespace"]), owner["name"], name if owner["kind"] == "JobSet" else "")
            for _ in range(part.get("count", 1) - done.get(name, 0) - present[key]):
                yield _pod(meta, owner, part["template"], next(numbers), message), refusal


def _is_counted(pod: Pod) -> bool:
    """Return whether a pod is demand itself: Kueue's own gate keeps new pods back for a moment."""
    is_ending = has_ended(pod) or (pod.metadata and pod.metadata.deletionTimestamp)
    return not is_ending and bool((pod.spec and pod.spec.nodeName) or waits_for_machine(pod))


def _keys(pod: Pod) -> Iterator[tuple[str, str, str]]:
    """Yield the namespace, owner and part of the work to which a pod may belong."""
    labels = (pod.metadata.labels if pod.metadata else None) or {}
    namespace = str(pod.metadata.namespace if pod.metadata else "")
    if JOBSET_NAME in labels:
        yield namespace, labels[JOBSET_NAME], labels.get(_SET, "")
    elif _JOB in labels:
        yield namespace, labels[_JOB], ""


def _pod(meta: Object, owner: Object, template: Object, number: int, message: str) -> Pod:
    """Return a pod that does not exist yet; no name of Kubernetes has a slash."""
    given = template.get("metadata") or {}
    own = {JOBSET_NAME: owner["name"]} if owner["kind"] == "JobSet" else {}
    metadata = {
        **{name: meta[name] for name in ("namespace", "creationTimestamp")},
        "name": f"{owner['name']}/{number}",
        "labels": {**(given.get("labels") or {}), **own},
        "annotations": given.get("annotations"),
        "ownerReferences": [owner],
    }
    status = {"conditions": [{"type": "PodScheduled", "status": "False", "message": message}]}
    return cast("Pod", Pod.from_dict({"metadata": metadata, "spec": template["spec"], "status": status}))


def followers(jobsets: Sequence[Object]) -> Iterator[tuple[str, bool]]:
    """Yield the JobSets of a namespace whose predecessor has ended, and whether they start: else they never will.

    A predecessor that does not exist any more was stopped.
    """
    by_run = {item["metadata"].get("labels", {}).get(RUN): item for item in jobsets}
    for item in jobsets:
        meta = item["metadata"]
        run, _, wish = str((meta.get("annotations") or {}).get(AFTER, "")).partition(":")
        if not run or (meta.get("labels") or {}).get(QUEUE_NAME) != HELD or meta.get("deletionTimestamp"):
            continue
        former = by_run.get(run)
        end = (former.get("status") or {}).get("terminalState", "") if former else "Deleted"
        if end:
            yield str(meta["name"]), wish == "any" or end == "Completed"
