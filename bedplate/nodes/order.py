"""What the process that works is ordered to do: handed over on its input, so that no list of processes shows it."""

import copyreg
import pickle
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import BinaryIO

from bedplate.plan.node import NodePlan

_SIZE = struct.Struct(">Q")


@dataclass(frozen=True, slots=True)
class Target:
    """A node to work on: its plan, and the command that runs a program on it, as `ssh -F FILE NAME`."""

    node: NodePlan
    argv: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Order:
    """An apply, or with `check` a look at what one would change; `only` names the roles that are wanted, None all."""

    targets: tuple[Target, ...]
    who: str
    check: bool = False
    only: frozenset[str] | None = None
    folder: str = "/run/bedplate"
    memory: str = "/var/lib/bedplate"


def write_order(stream: BinaryIO, order: Order) -> None:
    """Hand an order over."""
    text = pickle.dumps(order)
    stream.write(_SIZE.pack(len(text)) + text)
    stream.flush()


def read_order(stream: BinaryIO) -> Order:
    """Take an order; it comes from the process that started this one, and from nobody else."""
    (size,) = _SIZE.unpack(stream.read(_SIZE.size))
    order = pickle.loads(stream.read(size))  # noqa: S301  our own parent's pipe
    if not isinstance(order, Order):
        raise TypeError(type(order))
    return order


def _thaw(content: dict[object, object]) -> Mapping[object, object]:
    return MappingProxyType(content)


def _freeze(view: Mapping[object, object]) -> tuple[object, tuple[dict[object, object]]]:
    return _thaw, (dict(view),)


# Plans hold views that cannot be written to; pickle knows none.
copyreg.pickle(MappingProxyType, _freeze)  # type: ignore[arg-type]
