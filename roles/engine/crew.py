"""A node of an apply as pyinfra's own inventory, host and state, with a line of ours.

pyinfra has one state for all nodes, and all are at the same stage; here each has its own, and waits for no other.
pyinfra goes on with a fact's default where asking for it failed; here such a node is done.
"""

from collections.abc import Iterable, Mapping

from gevent.local import local
from pyinfra.api.config import Config
from pyinfra.api.host import Host
from pyinfra.api.inventory import Inventory
from pyinfra.api.state import State
from pyinfra.context import ctx_state

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
    """The node, by our own connector."""

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
    """pyinfra's books of one node."""

    @property
    def node(self) -> NodeHost:
        """The node itself."""
        return next(host for host in self.inventory if isinstance(host, NodeHost))

    def fail_hosts(self, hosts_to_fail: set[Host], activated_count: int | None = None) -> None:
        """Note a node that failed, and end the work on it."""
        del activated_count
        if hosts_to_fail:
            self.failed_hosts.update(hosts_to_fail)
            self.active_hosts -= hosts_to_fail
            raise Lost


def assemble(target: Target, opening: Opening) -> Watch:
    """Return pyinfra's state of a node; its line is not open yet."""
    named = (target.node.name, {"node": target.node, "argv": target.argv, "opening": opening})
    state = Watch(Crew(([named], {})), Config(PARALLEL=1))  # type: ignore[no-untyped-call]
    state.is_executing = False
    return state


def stand_apart() -> None:
    """Let each greenlet of this process have a state of its own; pyinfra keeps one for all."""
    ctx_state.context._container = local()  # noqa: SLF001  as pyinfra does itself for the host, not for the state
