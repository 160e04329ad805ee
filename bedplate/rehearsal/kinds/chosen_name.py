"""The name of a resource: the program's own, or what the provider makes of a prefix."""

from datetime import UTC, datetime
from itertools import count

from bedplate.rehearsal.kind import Props

_numbers = count(1)


def chosen_name(inputs: Props, key: str = "name") -> str:
    """Return the name under `key`, or its prefix with 26 digits, of the moment and counting up."""
    if name := inputs.get(key):
        return str(name)
    moment = datetime.now(UTC).strftime("%Y%m%d%H%M%S%f")[:18]
    return f"{inputs.get(f'{key}Prefix') or 'terraform-'}{moment}{next(_numbers):08x}"
