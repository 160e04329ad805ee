"""When nodes that run have room for waiting pods at the latest: the limits of other pods' time say it."""

from collections.abc import Sequence

from bedplate.capacity.observation import Observation, Pod
from bedplate.capacity.packing import Place, Shape, Source, node_place, shape_of


def room_at(pods: Sequence[Pod], observation: Observation) -> tuple[float, str] | None:
    """Return the time at which there is room for all of these pods at once, and the gang or pod that ends then.

    None without such a time: there is room now, pods without a limit are in the way, or the pods are of several shapes
    or spread. Other waiting pods are not counted.
    """
    shapes = {shape_of(pod) for pod in pods}
    if len(shapes) != 1 or (shape := shapes.pop()).spread or shape.kinds:
        return None
    noticed = {machine.node for machine in observation.machines if machine.notice is not None}
    places = {
        node.name: place
        for node in observation.nodes
        if (place := node_place(node, Source.LIVE, None)).admits(shape)
        and not (node.cordoned or node.is_broken or node.not_ready_since is not None or node.name in noticed)
    }
    room = {name: _room(place, shape, len(pods)) for name, place in places.items()}
    if sum(room.values()) >= len(pods):
        return None
    for pod in sorted(observation.pods, key=lambda pod: pod.until):
        if pod.until and (name := str(pod.node)) in places:
            places[name].take(shape_of(pod), -1)
            room[name] = _room(places[name], shape, len(pods))
            if sum(room.values()) >= len(pods):
                return max(pod.until, observation.time), pod.gang or pod.id
    return None


def _room(place: Place, shape: Shape, most: int) -> int:
    """Return how many pods of a shape fit, up to a number."""
    own, count = place.copy(), 0
    while count < most and own.has_room(shape):
        own.take(shape)
        count += 1
    return count
