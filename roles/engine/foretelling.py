"""What would change on a node, without changing it: pyinfra's own guesses, followed through what answers them."""

from collections.abc import Callable, Collection

from pyinfra.api.host import Host
from pyinfra.api.operation import OperationMeta
from pyinfra.api.state import State, StateOperationHostData
from pyinfra.connectors.util import CommandOutput


def name_of(state: State, host: Host, key: str) -> str:
    """Return how an operation is called on this node; pyinfra's own table mixes the names of all nodes."""
    named = state.get_op_data_for_host(host, key).global_arguments.get("name")
    return str(named or ", ".join(sorted(state.get_op_meta(key).names)))


def foretell(state: State, host: Host, unfinished: Collection[str] = ()) -> tuple[str, ...]:
    """Return the keys of the operations that would change something, those that answer others' changes included.

    What an earlier apply began counts as a change once more.
    """
    metas = [state.get_op_data_for_host(host, key).operation_meta for key in host.op_hash_order]
    try:
        return tuple(key for key in host.op_hash_order if _would_change(state, host, key, unfinished))
    finally:
        for meta in metas:
            _undo(meta)


def count_as_change(meta: OperationMeta) -> None:
    """Let an operation that found nothing to do pass for a change: it did its work in an apply that was cut off."""
    meta._commands = ["done before"]  # noqa: SLF001  pyinfra has no way to say so


def _would_change(state: State, host: Host, key: str, unfinished: Collection[str]) -> bool:
    data = state.get_op_data_for_host(host, key)
    changes = data.operation_meta.will_change and all(asked() for asked in _conditions(data))
    data.operation_meta.set_complete(
        success=True, commands=["change"] if changes else [], combined_output=CommandOutput([])
    )
    if name_of(state, host, key) in unfinished:
        count_as_change(data.operation_meta)
    return changes


def _conditions(data: StateOperationHostData) -> list[Callable[[], bool]]:
    found = data.global_arguments.get("_if")
    return [] if not found else list(found) if isinstance(found, list) else [found]


def _undo(meta: OperationMeta) -> None:
    """Make an operation as if it had not been looked through."""
    meta._success, meta._commands, meta._combined_output = None, None, None  # noqa: SLF001  as above
