"""An AWS client that sees the simulated AWS of `tests.testlab.engine.provider`."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from multiprocessing.connection import Client
from pathlib import Path
from typing import Any, cast

from botocore.client import BaseClient
from botocore.config import Config

from bedplate.account.client import AwsClient


@dataclass(frozen=True, slots=True)
class _Service:
    """A client of one service, as boto3 creates it."""

    folder: Path
    service: str
    region: str

    def __getattr__(self, operation: str) -> Callable[..., Any]:
        return lambda **params: self._send(operation, params, is_listing=False)

    def get_paginator(self, operation: str) -> "_Pages":
        """Return the paginator of an operation."""
        return _Pages(lambda params: self._send(operation, params, is_listing=True))

    def _send(self, operation: str, params: dict[str, Any], *, is_listing: bool) -> Any:  # noqa: ANN401  any reply
        with Client(str(self.folder / "client")) as connection:
            connection.send((self.service, self.region, operation, params, is_listing))
            reply = connection.recv()
        if isinstance(reply, Exception):
            raise reply
        return reply


@dataclass(frozen=True, slots=True)
class _Pages:
    send: Callable[[dict[str, Any]], Iterable[dict[str, Any]]]

    def paginate(self, **params: Any) -> Iterable[dict[str, Any]]:  # noqa: ANN401  boto3's own
        """Return all pages."""
        return self.send(params)


@dataclass(slots=True)
class _Session:
    folder: Path
    region_name: str | None = None

    def client(self, service_name: str, *, region_name: str, config: Config) -> BaseClient:  # noqa: ARG002  boto3's own
        """Return the client of a service."""
        return cast("BaseClient", _Service(self.folder, service_name, region_name))


def simulated_client(folder: Path) -> AwsClient:
    """Return the client of the simulated AWS with a folder."""
    return AwsClient(_Session(folder))
