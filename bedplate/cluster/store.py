"""What a controller keeps for its successor: texts in a ConfigMap."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import ConfigMap

from bedplate.cluster.client import ClusterClient, Missing
from bedplate.cluster.lease import NAME, NAMESPACE

IDLE, MEMORY = "state.json", "memory.json"
"""The texts: since when nodes are idle, and what the planner remembers."""


@dataclass
class StateStore:
    """The texts by name; only the leader writes them, and only if one has changed."""

    client: ClusterClient
    _last: Mapping[str, str] = field(default_factory=dict)

    def read(self) -> Mapping[str, str]:
        """Return the texts; none if nobody has written them."""
        try:
            stored = self.client.call("get ConfigMap", lambda api: api.get(ConfigMap, NAME, namespace=NAMESPACE))
        except Missing:
            return {}
        self._last = dict(stored.data or {})
        return self._last

    def write(self, texts: Mapping[str, str]) -> None:
        """Write the texts, in place of all others."""
        if texts == self._last:
            return
        meta = ObjectMeta(name=NAME, namespace=NAMESPACE)
        stored = ConfigMap(metadata=meta, data=dict(texts))
        try:
            self.client.call("replace ConfigMap", lambda api: api.replace(stored))
        except Missing:
            self.client.call("create ConfigMap", lambda api: api.create(stored))
        self._last = texts
