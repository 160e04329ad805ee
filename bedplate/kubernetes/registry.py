"""The digests of images, as their registries answer an anonymous client."""

import re
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
    try:
        digest = _read(f"{scheme}://{registry}/v2/{name}/manifests/{tag}")
    except (OSError, HTTPException, ValueError, KeyError, TypeError, AttributeError) as error:
        reason, fix = getattr(error, "reason", error), "check the connection, and run it again"
        raise PartialError(f"cannot read the digest of {image}: {reason}", fix=fix) from None
    if not _DIGEST.fullmatch(digest):
        raise PartialError(f"{registry} sent no digest of {image}", fix="run it again")
    return digest


def _read(url: str) -> str:
    try:
        return _head(url, "")
    except HTTPError as error:
        if error.code != _UNAUTHORIZED:
            raise
        return _head(url, _token(error.headers.get("WWW-Authenticate", "")))


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
