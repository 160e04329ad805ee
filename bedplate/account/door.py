"""The one place where a real AWS is called: clients made once each, and failures told as ours.

Never holds or prints a credential; boto3 finds them where the operator keeps them.
"""

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

import boto3
from botocore.client import BaseClient
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, ParamValidationError

from bedplate.account.trouble import trouble
from bedplate.errors import InputError

# Seconds; most calls are answered within one; a region that is silent is told, not waited for.
_CONNECT, _READ = 5, 20
_ATTEMPTS = 4
# What boto3 would raise of a call that we have made wrongly: a defect, not an operator's matter.
_DEFECTS = ParamValidationError


class Session(Protocol):
    """What makes clients: boto3's own session, or one whose answers are known."""

    def client(self, service_name: str, *, region_name: str, config: Config) -> BaseClient:
        """Return a client of a service in a region."""


@dataclass(frozen=True, slots=True)
class Door:
    """The account that the operator's credentials belong to, in all its regions; may be used from many threads."""

    session: Session
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _clients: dict[tuple[str, str], BaseClient] = field(default_factory=dict)

    def call(self, service: str, region: str, operation: str, **params: Any) -> dict[str, Any]:  # noqa: ANN401  boto3's own
        """Make one call, `call("sts", "us-east-1", "get_caller_identity")`; raises BedplateError as `trouble` does."""
        try:
            reply: dict[str, Any] = getattr(self._client(service, region), operation)(**params)
        except _DEFECTS:
            raise
        except (BotoCoreError, ClientError) as error:
            raise trouble(error, service) from None
        return reply

    def pages(self, service: str, region: str, operation: str, **params: Any) -> Iterator[dict[str, Any]]:  # noqa: ANN401
        """Yield the pages of a listing, to the last one; raises as `call` does."""
        try:
            yield from self._client(service, region).get_paginator(operation).paginate(**params)
        except _DEFECTS:
            raise
        except (BotoCoreError, ClientError) as error:
            raise trouble(error, service) from None

    def _client(self, service: str, region: str) -> BaseClient:
        # A session is not safe for threads, its clients are.
        with self._lock:
            if (service, region) not in self._clients:
                self._clients[service, region] = self.session.client(service, region_name=region, config=_config())
            return self._clients[service, region]


def _config() -> Config:
    retries = {"mode": "standard", "total_max_attempts": _ATTEMPTS}
    return Config(connect_timeout=_CONNECT, read_timeout=_READ, retries=retries)


def opened_session() -> Session:
    """Return the session of the operator's own settings; MachineError when they name a profile that there is not."""
    try:
        session: Session = boto3.session.Session()
    except BotoCoreError as error:
        raise trouble(error, "sts") from None
    return session


def open_door() -> Door:
    """Return the door of the operator's own credentials; nothing is asked yet."""
    return Door(opened_session())


def check_account(door: Door, account: str, region: str) -> None:
    """Ask whose credentials these are, before anything else is asked; InputError when they are another account's."""
    theirs = door.call("sts", region, "get_caller_identity")["Account"]
    if theirs != account:
        raise InputError(
            f"these credentials are of account {theirs}, and the fleet file names account {account}",
            fix="set AWS_PROFILE to a profile of the fleet's account, or correct `account`",
        )
