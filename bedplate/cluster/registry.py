"""The digests of images, as their registries answer an anonymous client."""

import re
from collections.abc import Callable
from http.client import HTTPException
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import Request, urlopen

from bedplate.errors import PartialError
from bedplate.foreign import LARGEST, parse_json

_SECONDS = 30
_UNAUTHORIZED = 401
_INDEXES = ", ".join(
    f"application/vnd.{kind}+json"
    for kind in (
        "oci.image.index.v1",
        "docker.distribution.manifest.list.v2",
        "oci.image.manifest.v1",
        "docker.distribution.manifest.v2",
    )
)
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


def image_digest(image: str, *, scheme: str = "https") -> str:
    """Return the digest of `registry/name:tag`, for all architectures. Raises PartialError."""
    registry, _, path = image.partition("/")
    name, _, tag = path.rpartition(":")
    url = f"{scheme}://{registry}/v2/{name}/manifests/{tag}"
    try:
        digest = _head(url, "")
    except HTTPError as error:
        if error.code != _UNAUTHORIZED:
            raise _failure(image, error) from None
        challenge = error.headers.get("WWW-Authenticate", "")
        digest = _translated(image, lambda: _head(url, _token(challenge)))
    except (OSError, HTTPException, ValueError) as error:
        raise _failure(image, error) from None
    if not _DIGEST.fullmatch(digest):
        raise PartialError(f"{registry} sent no digest of {image}", fix="run it again")
    return digest


def _translated(image: str, read: Callable[[], str]) -> str:
    try:
        return read()
    except (OSError, HTTPException, ValueError, KeyError, TypeError, AttributeError) as error:
        raise _failure(image, error) from None


def _failure(image: str, error: Exception) -> PartialError:
    reason = getattr(error, "reason", error)
    return PartialError(f"cannot read the digest of {image}: {reason}", fix="check the connection, and run it again")


def _head(url: str, token: str) -> str:
    headers = {"Accept": _INDEXES, **({"Authorization": f"Bearer {token}"} if token else {})}
    request = Request(url, headers=headers, method="HEAD")  # noqa: S310  # addresses of the catalog
    with urlopen(request, timeout=_SECONDS) as reply:  # noqa: S310  # addresses of the catalog
        return str(reply.headers.get("Docker-Content-Digest", ""))


def _token(challenge: str) -> str:
    """Return the token of an anonymous client, by a registry's challenge (distribution specification)."""
    values = dict(re.findall(r'(\w+)="([^"]*)"', challenge))
    query = urlencode({key: values[key] for key in ("service", "scope") if key in values})
    with urlopen(f"{values['realm']}?{query}", timeout=_SECONDS) as reply:  # noqa: S310  # named by the registry
        answer = parse_json(reply.read(LARGEST + 1))
    return str(answer.get("token") or answer["access_token"])
