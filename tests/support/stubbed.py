"""An AWS whose answers are known: botocore's own clients and stubs, which check every question and every answer.

A question that nobody expected, or one with other arguments, fails the test.
"""

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import boto3
import pytest
from botocore.client import BaseClient
from botocore.config import Config
from botocore.exceptions import StubResponseError
from botocore.stub import Stubber

from bedplate.account.door import Door

ACCOUNT = "111122223333"


class _Strict(Stubber):  # type: ignore[misc]  # botocore has no types
    """A stub whose complaints are no errors of botocore's: those would be told to an operator."""

    def _assert_expected_call_order(self, model: Any, params: Any) -> None:  # noqa: ANN401
        try:
            super()._assert_expected_call_order(model, params)
        except StubResponseError as error:
            pytest.fail(str(error))

    def _assert_expected_params(self, model: Any, params: Any, context: Any, **named: Any) -> None:  # noqa: ANN401
        try:
            super()._assert_expected_params(model, params, context, **named)
        except StubResponseError as error:
            pytest.fail(str(error))


class StubbedSession:
    """Stands where boto3's session would; what it is told to answer, it answers once, in that order."""

    def __init__(self) -> None:
        self._maker = boto3.session.Session("key", "secret")
        self._stubs: dict[tuple[str, str], tuple[BaseClient, Stubber]] = {}
        self._lock = threading.Lock()

    def client(self, service_name: str, *, region_name: str, config: Config) -> BaseClient:  # noqa: ARG002  stubs wait for nobody
        """Return the stubbed client of a service in a region."""
        with self._lock:
            return self._stub(service_name, region_name)[0]

    def answers(self, service: str, region: str, operation: str, reply: Mapping[str, Any], **asked: Any) -> None:  # noqa: ANN401
        """Answer one question."""
        self._stub(service, region)[1].add_response(operation, dict(reply), asked)

    def refuses(self, service: str, region: str, operation: str, code: str, status: int = 400) -> None:
        """Refuse one question, whatever its arguments."""
        self._stub(service, region)[1].add_client_error(operation, code, "what AWS says of it", status)

    def belongs_to(self, account: str, region: str) -> None:
        """Answer whose credentials they are, when that region is asked."""
        arn = f"arn:aws:sts::{account}:assumed-role/ops/somebody"
        self.answers("sts", region, "get_caller_identity", {"Account": account, "UserId": "AROA", "Arn": arn})

    def assert_all_asked(self) -> None:
        """Fail where an answer was prepared that nobody asked for."""
        for _, stubber in self._stubs.values():
            stubber.assert_no_pending_responses()

    def _stub(self, service: str, region: str) -> tuple[BaseClient, Stubber]:
        if (service, region) not in self._stubs:
            client = self._maker.client(service, region_name=region)
            stubber = _Strict(client)
            stubber.activate()
            self._stubs[service, region] = client, stubber
        return self._stubs[service, region]


@contextmanager
def stubbed_account(patch: pytest.MonkeyPatch) -> Iterator[StubbedSession]:
    """Give commands a session whose answers the test prepares; all of them must have been asked for in the end."""
    session = StubbedSession()
    patch.setattr("bedplate.account.door.opened_session", lambda: session)
    yield session
    session.assert_all_asked()


def door_of(session: StubbedSession) -> Door:
    """Return the door of a stubbed session."""
    return Door(session)
