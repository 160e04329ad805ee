"""The nodes of one apply as pyinfra's own inventory, hosts and state, each with a line of ours.

pyinfra goes on with a fact's default where asking for it failed; here such a node is done.
"""

from collections.abc import Iterable, Mapping, Sequence

from pyinfra.api.config import Config
from pyinfra.api.host import Host
from pyinfra.api.inventory import Inventory
from pyinfra.api.state import State

from bedplate.nodes.order import Target
from roles.engine.connector import NodeConnector
from roles.engine.line import Opening


class Lost(Exception):
    """A question to the node failed: its connector knows what was said."""


class NodeHost(Host):
    """A host whose questions are known as such."""

    connector: NodeConnector

    def get_fact(self, name_or_cls, *args, **kwargs):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN002, ANN003, ANN201
        """Ask, as pyinfra does."""
        with self.connector.asking():
            return super().get_fact(name_or_cls, *args, **kwargs)


class Crew(Inventory):
    """The nodes, all by our own connector."""

    def make_hosts_and_groups(
        self, names: Iterable[tuple[str, dict[str, object]]], groups: Mapping[str, object]
    ) -> None:
        """Make the hosts; there are no groups."""
        del groups
        self.hosts = {}
        for name, data in names:
            self.host_data[name] = data
            self.hosts[name] = NodeHost(name, inventory=self, groups=[], connector_cls=NodeConnector)


class Watch(State):
    """pyinfra's books of all nodes; one that fails is nobody else's matter."""

    @property
    def crew(self) -> tuple[NodeHost, ...]:
        """The nodes, in the order in which they were named."""
        return tuple(host for host in self.inventory if isinstance(host, NodeHost))

    def fail_hosts(self, hosts_to_fail: set[Host], activated_count: int | None = None) -> None:
        """Note a node that failed, and end the work on it."""
        del activated_count
        if hosts_to_fail:
            self.failed_hosts.update(hosts_to_fail)
            self.active_hosts -= hosts_to_fail
            raise Lost


def assemble(targets: Sequence[Target], opening: Opening) -> Watch:
    """Return pyinfra's state of these nodes; no line is open yet."""
    names = [(each.node.name, {"node": each.node, "argv": each.argv, "opening": opening}) for each in targets]
    state = Watch(Crew((names, {})), Config(PARALLEL=max(1, len(names))))  # type: ignore[no-untyped-call]
    state.is_executing = False
    return state
