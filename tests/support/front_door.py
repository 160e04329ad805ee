"""A stand-in for AWS's endpoints: it takes only requests that are signed as AWS demands, and moto answers them.

What moto has no model of is noted and said to be done; what it lets pass and Route 53 does not is refused here.
"""

import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from threading import Lock
from urllib.parse import parse_qsl

import requests
from botocore.credentials import Credentials

from bedplate.rehearsal.simulation import Aws
from tests.support.metadata import serving
from tests.support.signed import Request, signed_for

_SPACE = "{https://route53.amazonaws.com/doc/2013-04-01/}"
_REFUSED = "<ErrorResponse><Error><Code>{code}</Code><Message>{message}</Message></Error></ErrorResponse>"
_PASSED_ON = ("Content-Type", "X-Amz-Target", "Authorization", "X-Amz-Date", "X-Amz-Security-Token")


@dataclass
class FrontDoor:
    """The endpoints of one account for whoever holds the keys, and all that was asked there."""

    aws: Aws
    keys: Credentials
    url: str = ""
    asked: list[dict[str, str]] = field(default_factory=list)
    deaf: set[str] = field(default_factory=set)
    """Actions that are refused."""
    done: Callable[[str], None] = lambda _action: None
    """Told of each action that moto has carried out."""
    _lock: Lock = field(default_factory=Lock)

    def answer(self, method: str, path: str, headers: dict[str, str], body: bytes) -> tuple[int, str]:
        """Return status and text of the answer to a request."""
        scope = signed_for(Request(method, path, headers, body), self.keys)
        if scope is None:
            return 403, _REFUSED.format(code="SignatureDoesNotMatch", message="this request is not signed so")
        form = dict(parse_qsl(body.decode()))
        action = form.get("Action") or headers.get("X-Amz-Target", f"{method} {path.partition('?')[0]}")
        with self._lock:
            self.asked.append({"service": scope.service, "region": scope.region, "action": action, **form})
            return self._answer(f"{scope.service}.{scope.region}", action, (method, path, headers, body))

    def _answer(self, host: str, action: str, request: tuple[str, str, dict[str, str], bytes]) -> tuple[int, str]:
        method, path, headers, body = request
        if action in self.deaf:
            return 400, _REFUSED.format(code="AccessDenied", message=f"{action} is not allowed")
        if action == "CompleteLifecycleAction":
            return 200, "<CompleteLifecycleActionResponse/>"
        if host.startswith("route53") and method == "POST" and (message := self._misfit(path, body)):
            return 400, _REFUSED.format(code="InvalidChangeBatch", message=message)
        name = "route53" if host.startswith("route53") else host
        passed = {key: value for key, value in headers.items() if key in _PASSED_ON}
        reply = requests.request(method, f"https://{name}.amazonaws.com{path}", headers=passed, data=body, timeout=60)
        if reply.ok:
            self.done(action)
        return reply.status_code, reply.text

    def _misfit(self, path: str, body: bytes) -> str:
        """Return why Route 53 takes none of a batch: it creates nothing over, and deletes nothing but what is there."""
        zone = path.split("/")[3]
        listed = self.aws.call("route53", "list_resource_record_sets", HostedZoneId=zone)["ResourceRecordSets"]
        there = {
            (one["Name"].rstrip("."), one["Type"]): (str(one["TTL"]), one["ResourceRecords"][0]["Value"])
            for one in listed
            if one["Type"] in ("A", "SSHFP", "TXT")
        }
        for change in ET.fromstring(body).iter(f"{_SPACE}Change"):  # noqa: S314  # our own script wrote it
            words = {part.tag.removeprefix(_SPACE): (part.text or "") for part in change.iter()}
            key, value = (words["Name"], words["Type"]), (words["TTL"], words["Value"])
            if words["Action"] == "CREATE" and key in there:
                return f"Tried to create resource record set {key} but it already exists"
            if words["Action"] == "DELETE" and there.pop(key, None) != value:
                return f"Tried to delete resource record set {key} but the values provided do not match"
        return ""


@contextmanager
def front_door(aws: Aws) -> Iterator[FrontDoor]:
    """Serve the simulated AWS over HTTP to a role of its account."""
    role = f"arn:aws:iam::{aws.account}:role/node"
    held = aws.call("sts", "assume_role", RoleArn=role, RoleSessionName="node")["Credentials"]
    door = FrontDoor(aws, Credentials(held["AccessKeyId"], held["SecretAccessKey"], held["SessionToken"]))

    class Handler(BaseHTTPRequestHandler):
        def _serve(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            # Header names as AWS writes them: curl writes some of them in small letters.
            headers = {key.title(): value for key, value in self.headers.items()}
            status, text = door.answer(self.command, self.path, headers, body)
            self.send_response(status)
            self.send_header("Content-Length", str(len(text.encode())))
            self.end_headers()
            self.wfile.write(text.encode())

        def do_GET(self) -> None:
            self._serve()

        def do_POST(self) -> None:
            self._serve()

        def log_message(self, *args: object) -> None:
            """Keep the tests' output clean."""

    with serving(Handler) as url:
        door.url = url
        yield door
