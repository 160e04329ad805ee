"""The work that waits in queues of Kueue, as the pods that it will have, and what becomes of runs that follow others.

Kueue keeps work suspended, without pods, until nodes have room for all of it: without this, no machine would start.
Source: Kueue 0.19.1, apis/kueue/v1beta2; JobSet 0.12.0, api/jobset/v1alpha2.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
# Why Kueue never admits work, however many nodes there are. The first is that of 0.19 by default, for several others.
_REFUSALS = frozenset(("Inadmissible", "Misconfigured", "NoMatchingFlavor", "ExceedsMaxQuota", "Suspended", "OnHold"))


def queued_pods(workloads: Iterable[Object], pods: Iterable[Pod]) -> Iterator[tuple[Pod, str]]:
    """Yield the pods that work lacks, and why Kueue never admits it, which is empty for most.

    Work in the queue `held`, and what has ended or is being deleted, lacks none.
    """
    present = Counter(key for pod in pods if _is_counted(pod) for key in _keys(pod))
    for workload in workloads:
        meta, spec, status = workload["metadata"], workload["spec"], workload.get("status") or {}
        conditions = {item["type"]: item for item in status.get("conditions") or ()}
        owner = owner_of_workload(workload)
        if not owner or not _is_wanted(meta, spec, conditions):
            continue
        reserved = conditions.get("QuotaReserved", {})
        is_waiting = reserved.get("status") == "False"
        message = str(reserved.get("message", "")) if is_waiting else ""
        refusal = (
            f"its queue does not admit it: {message}" if reserved.get("reason") in _REFUSALS and is_waiting else ""
        )
        done = {item["name"]: item["count"] for item in status.get("reclaimablePods") or ()}
        number = 0
        for part in spec["podSets"]:
            name = part.get("name", "main")
            key = (str(meta["namespace"]), owner["name"], name if owner["kind"] == "JobSet" else "")
            for _ in range(part.get("count", 1) - done.get(name, 0) - present[key]):
                yield _pod(workload, owner, part["template"], number, message), refusal
                number += 1


def _is_wanted(meta: Object, spec: Object, conditions: Mapping[str, Object]) -> bool:
    if meta.get("deletionTimestamp") or spec.get("active") is False or spec.get("queueName") == HELD:
        return False
    return conditions.get("Finished", {}).get("status") != "True"


def owner_of_workload(workload: Object) -> Object:
    """Return the reference to the JobSet or Job of a Workload; empty for other work."""
    owners = workload["metadata"].get("ownerReferences") or ()
    return next((owner for owner in owners if owner["kind"] in {"JobSet", "Job"}), {})


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


def _pod(workload: Object, owner: Object, template: Object, number: int, message: str) -> Pod:
    """Return a pod that does not exist yet; no name of Kubernetes has a slash."""
    meta, given = workload["metadata"], template.get("metadata") or {}
    labels = {**(given.get("labels") or {}), **({JOBSET_NAME: owner["name"]} if owner["kind"] == "JobSet" else {})}
    metadata = {
        "name": f"{owner['name']}/{number}",
        "namespace": meta["namespace"],
        "creationTimestamp": meta["creationTimestamp"],
        "labels": labels,
        "annotations": given.get("annotations"),
        "ownerReferences": [owner],
    }
    condition = {"type": "PodScheduled", "status": "False", "message": message}
    document = {"metadata": metadata, "spec": template["spec"], "status": {"conditions": [condition]}}
    return cast("Pod", Pod.from_dict(document))


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
