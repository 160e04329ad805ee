"""Fakes of AWS: the instance metadata service, signed API requests, an HTTP endpoint for moto, and stubbed clients."""

import json
import re
import threading
import xml.etree.ElementTree as ET
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socket import IP_TTL, IPPROTO_IP, socket
from threading import Lock, Thread
from typing import Any
from urllib.parse import parse_qsl

import boto3
import pytest
import requests
from botocore.auth import S3SigV4Auth, SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.client import BaseClient
from botocore.config import Config
from botocore.credentials import Credentials
from botocore.exceptions import StubResponseError
from botocore.stub import Stubber

from bedplate.account.client import AwsClient
from bedplate.rehearsal.simulation import Aws

_TOKEN = "AQAEAtoken=="  # noqa: S105  # the fake's only token
_TTL = "X-aws-ec2-metadata-token-ttl-seconds"


class _Handler(BaseHTTPRequestHandler):
    facts: Mapping[str, str] = {}
    hops: int | None = None

    def do_PUT(self) -> None:
        if self.hops:
            self.connection.setsockopt(IPPROTO_IP, IP_TTL, self.hops)
        seconds = self.headers.get(_TTL) if self.path == "/latest/api/token" else None
        # rclone uses a token only if the response has its time.
        self._answer(200 if seconds else 400, _TOKEN if seconds else "", seconds)

    def do_GET(self) -> None:
        if self.headers.get("X-aws-ec2-metadata-token") != _TOKEN:
            self._answer(401, "")
            return
        fact = self.facts.get(self.path.removeprefix("/latest/meta-data/"))
        self._answer(404 if fact is None else 200, fact or "")

    def _answer(self, status: int, text: str, seconds: str | None = None) -> None:
        self.send_response(status)
        if seconds:
            self.send_header(_TTL, seconds)
        self.send_header("Content-Length", str(len(text.encode())))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *args: object) -> None:
        """Keep the tests' output clean."""


@contextmanager
def serving(handler: type[BaseHTTPRequestHandler], listener: socket | None = None) -> Iterator[str]:
    """Serve HTTP on a free port, or on a bound socket; yield the URL."""
    with ThreadingHTTPServer(("127.0.0.1", 0), handler, bind_and_activate=listener is None) as server:
        if listener:
            server.socket.close()
            server.socket, server.server_address = listener, listener.getsockname()
            server.server_activate()
        Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        try:
            yield "http://{}:{}".format(*server.socket.getsockname())
        finally:
            # Otherwise its thread would ask the closed socket without a pause.
            server.shutdown()


@contextmanager
def metadata_service(
    facts: Mapping[str, str], listener: socket | None = None, hops: int | None = None
) -> Iterator[str]:
    """Serve the instance metadata service, version 2; `facts` are the values by path, which may change later.

    `hops` is the hop limit of the token's response, as in EC2.
    """
    with serving(type("Handler", (_Handler,), {"facts": facts, "hops": hops}), listener) as url:
        yield url


_AUTHORIZATION = re.compile(
    r"AWS4-HMAC-SHA256 Credential=[^/]+/\d{8}/(?P<region>[^/]+)/(?P<service>[^/]+)/aws4_request, ?"
    r"SignedHeaders=(?P<signed>[^,]+), ?Signature=(?P<signature>[0-9a-f]+)"
)
_NEEDED = {"host", "x-amz-date", "x-amz-security-token"}
_SUM = "X-Amz-Content-Sha256"


@dataclass(frozen=True, slots=True)
class Request:
    """An HTTP request; header names are in the case of AWS, `X-Amz-Date`."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Scope:
    """The region and service of a signature."""

    region: str
    service: str


def signed_for(request: Request, keys: Credentials) -> Scope | None:
    """Return the scope of a request's signature by these keys; None if it is missing or wrong."""
    match = _AUTHORIZATION.fullmatch(request.headers.get("Authorization", ""))
    if match is None or not _is_complete(request, set(match["signed"].split(";")), keys):
        return None
    scope = Scope(match["region"], match["service"])
    return scope if _signature(request, set(match["signed"].split(";")), scope, keys) == match["signature"] else None


def _is_complete(request: Request, names: set[str], keys: Credentials) -> bool:
    """Return whether the required headers are signed, the token is right, and the body has the signed checksum."""
    checksum = request.headers.get(_SUM, "UNSIGNED")
    if not checksum.startswith(("UNSIGNED", "STREAMING")) and checksum != sha256(request.body).hexdigest():
        return False
    return names >= _NEEDED and request.headers.get("X-Amz-Security-Token") == keys.token


def _signature(request: Request, names: set[str], scope: Scope, keys: Credentials) -> str:
    headers = {name: value for name, value in request.headers.items() if name.lower() in names}
    copy = AWSRequest(request.method, f"http://{headers['Host']}{request.path}", headers=headers, data=request.body)
    copy.context["timestamp"] = headers["X-Amz-Date"]
    # S3 does not normalise paths.
    kind = S3SigV4Auth if scope.service == "s3" else SigV4Auth
    signer = kind(keys, scope.service, scope.region)
    return str(signer.signature(signer.string_to_sign(copy, signer.canonical_request(copy)), copy))


_SPACE = "{https://route53.amazonaws.com/doc/2013-04-01/}"
_REFUSED = "<ErrorResponse><Error><Code>{code}</Code><Message>{message}</Message></Error></ErrorResponse>"
_HOOK_ACTIONS = ("CompleteLifecycleAction", "RecordLifecycleActionHeartbeat")
_PASSED_ON = ("Content-Type", "X-Amz-Target", "Authorization", "X-Amz-Date", "X-Amz-Security-Token")


@dataclass
class AwsEndpoint:
    """An HTTP endpoint of one account, for holders of its keys; it records all requests."""

    aws: Aws
    keys: Credentials
    url: str = ""
    requests: list[dict[str, str]] = field(default_factory=list)
    deaf: set[str] = field(default_factory=set)
    """Actions that return an error."""
    throttled: int = 0
    """How many of the next calls Route 53 throttles."""
    done: Callable[[str], None] = lambda _action: None
    """Called after each successful action."""
    console: str = ""
    """The console output of every instance."""
    attached: dict[str, str] = field(default_factory=dict)
    """The instances that have volumes; moto would attach a volume to several."""
    _lock: Lock = field(default_factory=Lock)

    def answer(self, method: str, path: str, headers: dict[str, str], body: bytes) -> tuple[int, bytes]:
        """Return status and body of the response to a request."""
        scope = signed_for(Request(method, path, headers, body), self.keys)
        if scope is None:
            message = "The request signature does not match."
            return 403, _REFUSED.format(code="SignatureDoesNotMatch", message=message).encode()
        form = {} if scope.service == "s3" else dict(parse_qsl(body.decode()))
        action = form.get("Action") or headers.get("X-Amz-Target", f"{method} {path.partition('?')[0]}")
        with self._lock:
            self.requests.append({"service": scope.service, "region": scope.region, "action": action, **form})
            return self._answer(f"{scope.service}.{scope.region}", action, (method, path, headers, body))

    def _answer(self, host: str, action: str, request: tuple[str, str, dict[str, str], bytes]) -> tuple[int, bytes]:
        method, path, headers, body = request
        if action in self.deaf:
            return 400, _REFUSED.format(code="AccessDenied", message=f"{action} is not allowed").encode()
        volume = dict(parse_qsl(body.decode())).get("VolumeId", "") if action == "AttachVolume" else ""
        if volume in self.attached:
            message = f"{volume} is already attached to an instance"
            return 400, _REFUSED.format(code="VolumeInUse", message=message).encode()
        if action in _HOOK_ACTIONS:
            return 200, f"<{action}Response/>".encode()
        if action == "GetConsoleOutput":
            output = b64encode(self.console.encode()).decode()
            return 200, f"<GetConsoleOutputResponse><output>{output}</output></GetConsoleOutputResponse>".encode()
        if host.startswith("route53") and self.throttled:
            self.throttled -= 1
            return 400, _REFUSED.format(code="Throttling", message="Rate exceeded").encode()
        if host.startswith("route53") and method == "POST" and (message := self._batch_error(path, body)):
            return 400, _REFUSED.format(code="InvalidChangeBatch", message=message).encode()
        name = "route53" if host.startswith("route53") else host
        passed = {key: value for key, value in headers.items() if key in _PASSED_ON}
        reply = requests.request(method, f"https://{name}.amazonaws.com{path}", headers=passed, data=body, timeout=60)
        if reply.ok:
            self.done(action)
        return reply.status_code, reply.content

    def _batch_error(self, path: str, body: bytes) -> str:
        """Return why Route 53 rejects a batch: a created record exists, or a deleted record differs."""
        zone = path.split("/")[3]
        listed = self.aws.call("route53", "list_resource_record_sets", HostedZoneId=zone)["ResourceRecordSets"]
        existing = {
            (record["Name"].rstrip("."), record["Type"]): (str(record["TTL"]), record["ResourceRecords"][0]["Value"])
            for record in listed
            if record["Type"] in ("A", "SSHFP", "TXT")
        }
        for change in ET.fromstring(body).iter(f"{_SPACE}Change"):  # noqa: S314  # our own script wrote it
            fields = {part.tag.removeprefix(_SPACE): (part.text or "") for part in change.iter()}
            key, value = (fields["Name"], fields["Type"]), (fields["TTL"], fields["Value"])
            if fields["Action"] == "CREATE" and key in existing:
                return f"Tried to create resource record set {key} but it already exists"
            if fields["Action"] == "DELETE" and existing.pop(key, None) != value:
                return f"Tried to delete resource record set {key} but the values provided do not match"
        return ""


@contextmanager
def aws_endpoint(aws: Aws) -> Iterator[AwsEndpoint]:
    """Serve the simulated AWS over HTTP, for a role of its account."""
    role = f"arn:aws:iam::{aws.account}:role/node"
    held = aws.call("sts", "assume_role", RoleArn=role, RoleSessionName="node")["Credentials"]
    endpoint = AwsEndpoint(aws, Credentials(held["AccessKeyId"], held["SecretAccessKey"], held["SessionToken"]))

    class Handler(BaseHTTPRequestHandler):
        def _serve(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            # In the case of AWS: curl sends some header names in lower case.
            headers = {key.title(): value for key, value in self.headers.items()}
            status, content = endpoint.answer(self.command, self.path, headers, body)
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def do_GET(self) -> None:
            self._serve()

        def do_POST(self) -> None:
            self._serve()

        def do_PUT(self) -> None:
            self._serve()

        def log_message(self, *args: object) -> None:
            """Keep the tests' output clean."""

    with serving(Handler) as url:
        endpoint.url = url
        yield endpoint


ACCOUNT = "111122223333"


class _Strict(Stubber):  # type: ignore[misc]  # botocore has no types
    """A stub that fails the test instead of raising a botocore error, which the product would report."""

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


@cache
def _session() -> boto3.session.Session:
    """Return the session of all stubbed clients; it keeps the service models that it has read."""
    return boto3.session.Session("key", "secret")


class StubbedSession:
    """A fake boto3 session; each prepared response is returned once, in order."""

    region_name: str | None = None

    def __init__(self) -> None:
        self._stubs: dict[tuple[str, str], tuple[BaseClient, Stubber]] = {}
        self._lock = threading.Lock()

    def client(self, service_name: str, *, region_name: str, config: Config) -> BaseClient:  # noqa: ARG002  stubs have no timeouts
        """Return the stubbed client of a service in a region."""
        with self._lock:
            return self._stub(service_name, region_name)[0]

    def answers(self, service: str, region: str, operation: str, reply: Mapping[str, Any], **parameters: Any) -> None:  # noqa: ANN401
        """Prepare the response to one request."""
        self._stub(service, region)[1].add_response(operation, dict(reply), parameters)

    def refuses(self, service: str, region: str, operation: str, code: str, status: int = 400) -> None:
        """Prepare an error for one request with any arguments."""
        self._stub(service, region)[1].add_client_error(operation, code, "message of AWS", status)

    def belongs_to(self, account: str, region: str) -> None:
        """Prepare the caller identity for a region."""
        arn = f"arn:aws:sts::{account}:assumed-role/ops/somebody"
        self.answers("sts", region, "get_caller_identity", {"Account": account, "UserId": "AROA", "Arn": arn})

    def assert_all_asked(self) -> None:
        """Fail if a prepared response was not requested."""
        for _, stubber in self._stubs.values():
            stubber.assert_no_pending_responses()

    def _stub(self, service: str, region: str) -> tuple[BaseClient, Stubber]:
        if (service, region) not in self._stubs:
            client = _session().client(service, region_name=region)
            stubber = _Strict(client)
            stubber.activate()
            self._stubs[service, region] = client, stubber
        return self._stubs[service, region]


@contextmanager
def stubbed_account(patch: pytest.MonkeyPatch) -> Iterator[StubbedSession]:
    """Give commands a session with prepared responses, all of which must be requested."""
    session = StubbedSession()
    patch.setattr("bedplate.account.client.open_session", lambda: session)
    yield session
    session.assert_all_asked()


def client_of(session: StubbedSession) -> AwsClient:
    """Return the client of a stubbed session."""
    return AwsClient(session)


def product(type_name: str, usd: str, *, unit: str = "Hrs") -> str:
    """Return the price list entry of an instance type."""
    dimension = {"unit": unit, "pricePerUnit": {"USD": usd}}
    terms = {"OnDemand": {"SKU.TERM": {"priceDimensions": {"SKU.TERM.RATE": dimension}}}}
    return json.dumps({"product": {"attributes": {"instanceType": type_name}}, "terms": terms})


def asked_of_the_price_list(region: str) -> dict[str, object]:
    """Return the parameters of a price list request for a region."""
    fields = {
        "operatingSystem": "Linux",
        "tenancy": "Shared",
        "preInstalledSw": "NA",
        "capacitystatus": "Used",
        "operation": "RunInstances",
        "regionCode": region,
    }
    filters = [{"Type": "TERM_MATCH", "Field": field, "Value": value} for field, value in fields.items()]
    return {"ServiceCode": "AmazonEC2", "Filters": filters}
