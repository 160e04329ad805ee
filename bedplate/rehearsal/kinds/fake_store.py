"""Where fakes of one region are kept: under the region's name, so that two regions may use one name."""

from typing import Any
from uuid import uuid4

from bedplate.rehearsal.refusal import Refusal
from bedplate.rehearsal.simulation import Aws


def new_id(prefix: str) -> str:
    """Return an id as EC2 makes them: a prefix and seventeen hex digits."""
    return f"{prefix}-{uuid4().hex[:17]}"


def keep(aws: Aws, token: str, ident: str, properties: dict[str, Any]) -> None:
    """Keep the properties of a fake of this region, new or changed."""
    aws.fakes(token)[f"{aws.region}/{ident}"] = properties


def kept(aws: Aws, token: str, ident: str, code: str) -> dict[str, Any]:
    """Return the properties of a fake of this region; refuse with `code` when there is none."""
    found = aws.fakes(token).get(f"{aws.region}/{ident}")
    if found is None:
        raise Refusal(code, f"{ident} does not exist in {aws.region}")
    return found


def forget(aws: Aws, token: str, ident: str) -> None:
    """Forget a fake of this region."""
    aws.fakes(token).pop(f"{aws.region}/{ident}", None)
