"""Downloads of small public pages, without credentials."""

from http.client import HTTPException
from urllib.request import urlopen

from bedplate.errors import PartialError

_SECONDS = 30
_LONGEST = 4_000_000


def download(url: str) -> str:
    """Return the text of an https address; PartialError if it cannot be read."""
    try:
        with urlopen(url, timeout=_SECONDS) as reply:  # noqa: S310  # addresses of the catalog
            text: str = reply.read(_LONGEST).decode()
    except (OSError, HTTPException, UnicodeDecodeError) as error:
        reason = getattr(error, "reason", error)
        raise PartialError(f"cannot read {url}: {reason}", fix="check the connection, and run it again") from None
    return text
