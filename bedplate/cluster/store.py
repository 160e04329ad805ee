"""What a controller keeps for its successor: one text in a ConfigMap."""

from dataclasses import dataclass

from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import ConfigMap

from bedplate.cluster.client import ClusterClient, Missing
from bedplate.cluster.lease import NAME, NAMESPACE

_KEY = "state.json"


@dataclass
class StateStore:
    """The text; only the leader writes it, and only if it has changed."""

    client: ClusterClient
    _last: str = ""

    def read(self) -> str:
        """Return the text; empty if nobody has written it."""
        try:
            stored = self.client.call("get ConfigMap", lambda api: api.get(ConfigMap, NAME, namespace=NAMESPACE))
        except Missing:
            return ""
        self._last = (stored.data or {}).get(_KEY, "")
        return self._last

    def write(self, text: str) -> None:
        """Write the text."""
        if text == self._last:
            return
        meta = ObjectMeta(name=NAME, namespace=NAMESPACE)
        stored = ConfigMap(metadata=meta, data={_KEY: text})
        try:
            self.client.call("replace ConfigMap", lambda api: api.replace(stored))
        except Missing:
            self.client.call("create ConfigMap", lambda api: api.create(stored))
        self._last = text
