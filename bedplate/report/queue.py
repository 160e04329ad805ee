"""Why queued work waits, in sentences for its owner: the same that `capacity explain` has for operators."""

from collections import defaultdict
from collections.abc import Mapping, Sequence

from bedplate.capacity.observation import Decision, Observation, Pod
from bedplate.capacity.room import room_at
from bedplate.report.capacity import age, clock

_DAY = 86_400.0


def queued_work(observation: Observation) -> Mapping[str, Sequence[Pod]]:
    """Return the pods that do not exist yet by their owner, `NAMESPACE/KIND/NAME`, in their order of arrival."""
    work = defaultdict[str, list[Pod]](list)
    for pod in sorted(observation.pods, key=lambda pod: pod.arrival):
        if pod.queued:
            work[pod.owner].append(pod)
    return work


def wait_sentences(observation: Observation, decision: Decision) -> Mapping[str, str]:
    """Return why the work of each owner waits; without those of whom this decision says nothing new."""
    known, sentences = dict[object, str](), dict[str, str]()
    coming = {waiting.pod for waiting in decision.waiting if waiting.is_coming}
    reasons = {waiting.pod: waiting.reason for waiting in decision.waiting}
    reasons |= {unplaced.pod: unplaced.reason for unplaced in decision.unplaced}
    for owner, pods in queued_work(observation).items():
        said = [pod.id for pod in pods if pod.id in reasons]
        if not said:
            continue
        # One pod without a place keeps the others back.
        if not (kept := [name for name in said if name not in coming]):
            sentences[owner] = f"It has a place: {reasons[said[0]]}."
            continue
        key = (pods[0].size, *sorted(pods[0].selector.items()), pods[0].tolerations, len(pods))
        known[key] = known.get(key) or room_sentence(pods, observation)
        sentences[owner] = f"It has no place yet: {reasons[kept[0]]}. {known[key]}"
    return sentences


def room_sentence(pods: Sequence[Pod], observation: Observation) -> str:
    """Return when these pods can start, as far as that is known."""
    found = room_at(pods, observation)
    if found is None:
        return "Its start is unknown: what runs has no end that would make enough room."
    time, name = found
    wait = time - observation.time
    moment = f"at {clock(time)}" if wait < _DAY else f"in {age(wait)}"
    end = f"when the time of {name} is over, if no other work takes it"
    return f"Machines that run have room for it {moment} at the latest, {end}."
