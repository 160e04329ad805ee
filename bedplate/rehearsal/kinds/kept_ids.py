"""Ids that AWS or the provider keeps through an update while moto makes a new object: the one held, and moto's."""

from bedplate.rehearsal.simulation import Aws

_BOOK = "ids"


def current_id(aws: Aws, held: str) -> str:
    """Return moto's id of the object that programs know as `held`."""
    return str(aws.fakes(_BOOK).get(held, {}).get("current", held))


def keep_id(aws: Aws, held: str, current: str) -> None:
    """Note that what programs know as `held` is `current` in moto now."""
    aws.fakes(_BOOK)[held] = {"current": current}


def drop_id(aws: Aws, held: str) -> None:
    """Forget an id whose object is deleted."""
    aws.fakes(_BOOK).pop(held, None)
