"""Every key's promise: what changing it does to a fleet that lives. The most special row for a key counts."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType


class Effect(StrEnum):
    """What happens to what lives; each is harder on it than the one before."""

    FREE = "free"
    NEW_NODES = "new nodes only"
    ROLLING = "rolling replace"
    REPLACES = "replaces"
    REMOVES = "removes"
    REFUSED = "refused"

    @property
    def weight(self) -> int:
        """How hard it is on what lives: 0 for nothing at all."""
        return list(Effect).index(self)


class Event(StrEnum):
    """What happened to a key: it has another value, or an entry of a table or list came or went."""

    CHANGED = "changed"
    ADDED = "added"
    REMOVED = "removed"


@dataclass(frozen=True, slots=True)
class Policy:
    """What an event at a key does to a live fleet.

    `key` is dotted, `*` stands for a name or a place in a list; `does` says in a clause what is touched, `way` what
    to do instead where the edit is refused. `rolls` marks what machines start with: where a group is not rolled
    (people's machines, and those of a fabric), only its new nodes have it. `grows` marks what is free where a number
    gets larger, or a block holds the one that was.
    """

    key: str
    event: Event
    effect: Effect
    does: str
    way: str = ""
    rolls: bool = False
    grows: bool = False


_RELEASE = "on purpose: `bedplate plan --write --release PATH`, after what stands in it is gone"
_RECORDED = "the block that the lock holds, where it lies in the supernet, may be written or left out"
_DATA = "move the data first; then `pulumi state unprotect` what is told, and run again"
# An entry of a list is known by what it says, so that these are told as one that goes and one that comes.
_ANOTHER_POOL = "another pool: one goes, with its machines, and one comes"
_ANOTHER_GATEWAY = "another gateway: one goes, with its address, and one comes"
_ACCOUNTS = "nodes learn it at their next apply, new ones of the cloud when they start"
_FOLDER = "a new fleet, in a folder of its own"


def _free(key: str, does: str, *events: Event) -> tuple[Policy, ...]:
    return tuple(Policy(key, event, Effect.FREE, does) for event in events or (Event.CHANGED,))


def _comes_and_goes(key: str, comes: str, goes: str) -> tuple[Policy, Policy]:
    return Policy(key, Event.ADDED, Effect.FREE, comes), Policy(key, Event.REMOVED, Effect.REMOVES, goes)


def _started_with(key: str, does: str, *events: Event) -> tuple[Policy, ...]:
    return tuple(Policy(key, event, Effect.ROLLING, does, rolls=True) for event in events or (Event.CHANGED,))


def _replaces(key: str, does: str, *events: Event) -> tuple[Policy, ...]:
    return tuple(Policy(key, event, Effect.REPLACES, does) for event in events or (Event.CHANGED,))


def _refused(key: str, does: str, way: str, *events: Event) -> tuple[Policy, ...]:
    return tuple(Policy(key, event, Effect.REFUSED, does, way) for event in events or (Event.CHANGED,))


def _shrinks(key: str, does: str) -> Policy:
    return Policy(key, Event.CHANGED, Effect.REMOVES, does, grows=True)


_BOTH = (Event.ADDED, Event.REMOVED)
_EVERY = tuple(Event)

_FLEET = (
    *_refused("version", "it says what the keys of the file mean", "keep it, and update bedplate"),
    *_refused("name", "the lock, the stacks and all names are the old fleet's", _FOLDER),
    *_refused("account", "the stacks may act in the old account alone", _FOLDER),
    *_started_with("owner", "the tags of everything; a template with new tags is a new version"),
    *_replaces("domain", "the private zone and every name in it"),
    *_free("allow", "rules are judged, nothing is made"),
    *_free("people.*", _ACCOUNTS, *_BOTH),
    *_free("people.*.admin", _ACCOUNTS),
    *_free("people.*.keys", _ACCOUNTS, *_EVERY),
    *_free("people.*.groups", "nodes learn it at their next apply; a group keeps its id for ever", *_EVERY),
    *_free("budget", "the budget and its warnings", *_BOTH),
    *_free("budget.monthly", "the budget and its warnings"),
    *_free("budget.email", "the budget and its warnings"),
    *_free("alarms", "who is told; no alarm changes", *_BOTH),
    *_free("alarms.email", "who is told; no alarm changes"),
    *_free("identity.permissions_boundary", "what bounds the roles, at once", *_EVERY),
    *_free("image.base", "the next image; what runs stays"),
    *_free("image.driver", "the next image; what runs stays"),
    *_free("image.disk", "what is judged; no machine"),
    *_free("image.kernel", "the next image; what runs stays", *_EVERY),
    *_free("image.kubernetes", "the next image; what runs stays", *_EVERY),
)
_NETWORK = (
    Policy(
        "network.supernet",
        Event.CHANGED,
        Effect.REFUSED,
        "what is recorded would lie outside it",
        "one that holds every recorded block is free",
        grows=True,
    ),
    *_replaces("network.interconnect", "every link between regions and sites: they are apart meanwhile"),
    *_replaces(
        "network.egress", "NAT gateways and the addresses that others know nodes by; with none, nothing gets out"
    ),
    *_free("network.endpoints", "endpoints come, or go and nodes ask over the internet again", *_EVERY),
    *_free("network.region_size", "regions that have a block keep it"),
    *_comes_and_goes("regions.*", "a region comes; no other is touched", "all that stands there, but for data"),
    *_refused("regions.*.home", "all that is shared would move, and keys and etcd's volumes are protected", _DATA),
    *_comes_and_goes(
        "regions.*.zones",
        "subnets come; no other is touched",
        "its subnets, and what stands in them; refused while etcd is there",
    ),
    *_free("regions.*.zones", "their order says nothing"),
    *_refused("regions.*.block", "it would renumber the region", _RELEASE),
    *_refused("regions.*.block", "it would renumber the region", _RECORDED, *_BOTH),
)
_SITES = (
    *_comes_and_goes("sites.*", "connections come; no other is touched", "its connections, with their keys"),
    *_refused("sites.*.lan", "the lock holds the old one for the site", _RELEASE),
    *_replaces("sites.*.gateway.machine", "the customer gateway; tunnels are down while AWS changes over"),
    *_replaces("sites.*.gateway.public", "the customer gateway; tunnels are down while AWS changes over"),
    *_replaces("sites.*.gateway.asn", "the customer gateway; tunnels are down while AWS changes over"),
    *_free("sites.*.gateway.dials", "tunnel options; each tunnel is down for minutes, one after the other"),
    *_free("sites.*.gateway.behind_nat", "which of two joined gateways dials, by the next `bedplate vpn tunnels`"),
    *_free(
        "sites.*.gateway.joins", "nothing in AWS; the next `bedplate vpn tunnels` brings it or takes it away", *_BOTH
    ),
    *_free("sites.*.gateway.joins", "their order says nothing"),
    *_free("sites.*.machines.*", "names come or go; other nodes let it in, or stop, at their next apply", *_BOTH),
    *_free("sites.*.machines.*.address", "names lead to the new address; other nodes let it in at their next apply"),
    *_free("sites.*.machines.*.gpus", "the machine learns it at its next apply", *_BOTH),
    *_free("sites.*.machines.*.gpus.model", "the machine learns it at its next apply"),
    *_free("sites.*.machines.*.gpus.count", "the machine learns it at its next apply"),
    *_free("sites.*.machines.*.use", "the machine and those that let it in learn it at their next apply", *_EVERY),
    *_free(
        "sites.*.machines.*.scratch",
        "what is made at the machine's next apply; what is in use stays until a boot",
        *_EVERY,
    ),
    *_comes_and_goes("sites.*.dns", "forwarding comes", "forwarding: the site's own domain is not answered any more"),
    *_replaces("sites.*.dns.domain", "the rule that forwards it"),
    *_free("sites.*.dns.servers", "whom the rule asks", *_EVERY),
)
_GROUPS = (
    *_comes_and_goes("groups.*", "pools come", "its pools and their machines"),
    *_started_with("groups.*.use", "the role that machines have"),
    *_started_with("groups.*.types", "what machines are", *_EVERY),
    *_started_with("groups.*.similar", "what machines may be"),
    *_free("groups.*.nodes.min", "how many machines are kept"),
    _shrinks("groups.*.nodes.max", "how many machines there may be: AWS ends those above it"),
    *_started_with("groups.*.disk", "the root volume"),
    *_started_with("groups.*.disk_throughput", "the root volume"),
    *_started_with("groups.*.disk_iops", "the root volume"),
    *_replaces("groups.*.fabric", "its pools: a fabric wants one in each zone", *_EVERY),
    *_comes_and_goes("groups.*.ladder.*", "a pool comes", "its pool and the machines in it"),
    *_free("groups.*.ladder", "where capacity is looked for first, and which pool holds the minimum"),
    *_replaces("groups.*.ladder.*.region", _ANOTHER_POOL),
    *_replaces("groups.*.ladder.*.market", _ANOTHER_POOL),
    *_replaces("groups.*.ladder.*.reservation", _ANOTHER_POOL, *_EVERY),
    *_replaces("groups.*.ladder.*.zone", _ANOTHER_POOL, *_EVERY),
    *_started_with("groups.*.ladder.*.max_price", "what is paid on spot", *_EVERY),
    _shrinks("groups.*.ladder.*.reserved", "how many machines its pool may have: AWS ends those above it"),
    Policy("groups.*.ladder.*.reserved", Event.ADDED, Effect.REMOVES, "machines above it, where its pool has any"),
    *_free("groups.*.ladder.*.reserved", "how many machines its pool may have", Event.REMOVED),
    *_free("groups.*.ladder.*.ends", "when the pool is emptied", *_EVERY),
    *_free("groups.*.labels", "tags; nodes register them when they start"),
    *_free("groups.*.taints", "tags; nodes register them when they start", *_EVERY),
    *_started_with("groups.*.owner", "tags of machines", *_EVERY),
    *_started_with(
        "groups.*.expires",
        "tags of machines, and when they end; once that day is past, run `pulumi up --refresh`",
        *_EVERY,
    ),
    *_free("groups.*.schedule", "when machines start and stop", *_BOTH),
    *_free("groups.*.schedule.start", "when machines start and stop"),
    *_free("groups.*.schedule.stop", "when machines start and stop"),
    *_free("groups.*.schedule.days", "when machines start and stop"),
    *_free("groups.*.schedule.zone", "when machines start and stop"),
)
_STORAGE = (
    *_free("storage.*", "a store comes", Event.ADDED),
    *_refused("storage.*", "what holds data is protected", _DATA, Event.REMOVED),
    *_refused("storage.*.kind", "what holds data is protected", _DATA),
    *_refused("storage.*.region", "what holds data is protected", _DATA),
    *_free("storage.*.mount", "nodes mount it there at their next apply"),
    *_free("storage.*.regions", "a bucket comes, and copies to it", Event.ADDED),
    *_refused("storage.*.regions", "what holds data is protected", _DATA, Event.REMOVED),
    *_replaces("storage.*.regions", "which bucket is the source: copies begin anew"),
    *_free("storage.*.expire_days", "what is older goes within a day", *_EVERY),
    *_free("storage.*.readers", "who else may read, at once", *_EVERY),
    *_free("storage.*.site", "nodes mount it from there at their next apply"),
    *_free("storage.*.machine", "nodes mount it from there at their next apply"),
    *_free("storage.*.export", "nodes mount it from there at their next apply"),
    *_free("storage.*.clients", "the file server exports to them at its next apply"),
)
_REST = (
    *_comes_and_goes("vpn", "gateways come", "gateways and the laptops' pools"),
    *_comes_and_goes("vpn.laptops", "gateways come", "gateways and the laptops' pools"),
    *_comes_and_goes("vpn.laptops.gateways.*", "a gateway comes", "the gateway, with its address"),
    *_replaces("vpn.laptops.gateways.*.region", _ANOTHER_GATEWAY, *_EVERY),
    *_replaces("vpn.laptops.gateways.*.site", _ANOTHER_GATEWAY, *_EVERY),
    *_free("vpn.laptops.gateways", "their order says nothing"),
    *_free("vpn.laptops.between", "gateways take it up at their next apply, and laptops when they dial anew"),
    *_refused("vpn.laptops.pool", "it would renumber the pools", _RELEASE),
    *_free("vpn.tunnels.auth", "nothing in AWS; gateways learn it by the next `bedplate vpn tunnels`"),
    *_free("kubernetes", "the control plane comes", Event.ADDED),
    *_refused("kubernetes", "etcd's volumes are protected", _DATA, Event.REMOVED),
    *_free("kubernetes.version", "nothing in AWS; nodes are upgraded by their roles"),
    Policy("kubernetes.control_plane.type", Event.CHANGED, Effect.NEW_NODES, "each machine, when it is next replaced"),
    Policy(
        "kubernetes.control_plane.count",
        Event.CHANGED,
        Effect.REFUSED,
        "the last machines would go, and etcd's volumes are protected",
        _DATA,
        grows=True,
    ),
    *_refused("kubernetes.pods", "it would renumber the pods", _RELEASE, Event.CHANGED, Event.ADDED),
    *_free("kubernetes.pods", "the block that is recorded stays", Event.REMOVED),
    *_refused("kubernetes.services", "it would renumber the services", _RELEASE),
)

POLICIES: Mapping[tuple[str, Event], Policy] = MappingProxyType(
    {(row.key, row.event): row for table in (_FLEET, _NETWORK, _SITES, _GROUPS, _STORAGE, _REST) for row in table}
)
