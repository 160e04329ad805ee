"""An HTTP endpoint for a simulated AWS, which other processes use by AWS_ENDPOINT_URL: Pulumi for its state and key."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler

import requests

from bedplate.rehearsal.simulation import Aws
from tests.testlab.fakes.aws import serving

_SCOPE = re.compile(r"Credential=[^/]+/\d{8}/([^/]+)/([^/]+)/")
# Of one connection, or set by the server.
_HOP_HEADERS = ("connection", "content-length", "date", "host", "server", "transfer-encoding")


@contextmanager
def aws_environment(aws: Aws) -> Iterator[Mapping[str, str]]:
    """Serve all services of the simulated AWS; yield the environment of its clients."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _pass_on(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            scope = _SCOPE.search(self.headers.get("Authorization", ""))
            region, service = scope.groups() if scope else (aws.region, "s3")
            with aws.simulation._lock:  # noqa: SLF001  # moto is not thread-safe, and the provider uses it too
                response = requests.request(
                    self.command,
                    f"https://{service}.{region}.amazonaws.com{self.path}",
                    headers={name: value for name, value in self.headers.items() if name.lower() not in _HOP_HEADERS},
                    data=body,
                    timeout=60,
                    # A response to HEAD has a length without content.
                    stream=True,
                )
            content = b"" if self.command == "HEAD" else response.content
            self.send_response(response.status_code)
            for name, value in response.headers.items():
                if name.lower() not in _HOP_HEADERS:
                    self.send_header(name, value)
            length = response.headers.get("Content-Length", "0") if self.command == "HEAD" else str(len(content))
            self.send_header("Content-Length", length)
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = _pass_on  # noqa: N815

        def log_message(self, *args: object) -> None:
            """Keep the tests' output clean."""

    role = f"arn:aws:iam::{aws.account}:role/operator"
    keys = aws.call("sts", "assume_role", RoleArn=role, RoleSessionName="operator")["Credentials"]
    with serving(Handler) as url:
        yield {
            "AWS_ENDPOINT_URL": url,
            "AWS_REGION": aws.region,
            "AWS_ACCESS_KEY_ID": keys["AccessKeyId"],
            "AWS_SECRET_ACCESS_KEY": keys["SecretAccessKey"],
            "AWS_SESSION_TOKEN": keys["SessionToken"],
        }
