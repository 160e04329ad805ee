"""What a machine of the cloud has around it, at a stand: the metadata service at its own address, and S3 by TLS.

Names and addresses are AWS's own, so that a machine needs no setting which it would not have there: its table of hosts
stands for the name server, and an authority of the stand's is among those that AWS's command line trusts.
"""

import json
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path

from tests.testlab.fakes.aws import Request, metadata_service, serving
from tests.testlab.fakes.buckets import ObjectStore
from tests.testlab.machines.container import call
from tests.testlab.machines.stand import Node, bound

METADATA, _S3 = "169.254.169.254", "198.51.100.3"
# Of the connection, and so not for who asks.
_OWN = frozenset({"connection", "content-length", "date", "keep-alive", "server", "transfer-encoding"})


class _Handler(BaseHTTPRequestHandler):
    store: ObjectStore
    connection: ssl.SSLSocket
    # Whoever sends much asks first whether to go on.
    protocol_version = "HTTP/1.1"

    def __getattr__(self, name: str) -> Callable[[], None]:
        """Take all methods for one: the store tells them apart."""
        if name.startswith("do_"):
            return self._serve
        raise AttributeError(name)

    def _serve(self) -> None:
        headers = {name.title(): value for name, value in self.headers.items()}
        request = Request(self.command, self.path, headers, self._body())
        reply = self.store.answer(request, tls=(self.connection.version() or "").removeprefix("TLSv"))
        self.send_response(reply.status)
        told = {name: value for name, value in reply.headers.items() if name.lower() not in _OWN}
        length = reply.headers.get("Content-Length", len(reply.body)) if self.command == "HEAD" else len(reply.body)
        for name, value in {**told, "Content-Length": str(length)}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(reply.body)

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        chunks = []
        while size := int(self.rfile.readline(), 16):
            chunks.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(chunks)

    def log_message(self, *args: object) -> None:
        """Keep the tests' output clean."""


@contextmanager
def bucket_side(node: Node, store: ObjectStore, folder: Path) -> Iterator[None]:
    """Serve a store to a machine on which AWS's command line is installed already."""
    desk = node.desk.host
    desk.run("ip", "address", "replace", f"{_S3}/32", "dev", "lo")
    node.run("".join(f"echo {_S3} {host} >> /etc/hosts\n" for host in store.hosts))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*_certificate(folder, store.hosts))
    (trusted,) = node.root.glob("opt/bedplate-aws/lib/python3*/site-packages/awscli/botocore/cacert.pem")
    trusted.write_text(trusted.read_text() + (folder / "ca.pem").read_text())
    listener = context.wrap_socket(bound(desk, _S3, 443), server_side=True)
    with serving(type("Handler", (_Handler,), {"store": store}), listener):
        yield


@contextmanager
def role_side(node: Node, store: ObjectStore, hops: int) -> Iterator[None]:
    """Tell the credentials of the store's role; a token for them gets through so many networks."""
    desk = node.desk.host
    desk.run("ip", "address", "replace", f"{METADATA}/32", "dev", "lo")
    name = store.role.rpartition("/")[2]
    keys = {
        "AccessKeyId": store.keys.access_key,
        "SecretAccessKey": store.keys.secret_key,
        "Token": store.keys.token,
    }
    term = {"Code": "Success", "Type": "AWS-HMAC", "Expiration": "2099-01-01T00:00:00Z"}
    facts = {
        "iam/security-credentials/": name,
        f"iam/security-credentials/{name}": json.dumps({**term, **keys}),
    }
    with metadata_service(facts, bound(desk, METADATA, 80), hops):
        yield


def _certificate(folder: Path, names: tuple[str, ...]) -> tuple[Path, Path]:
    """Make an authority and, by it, a certificate of these names; return the certificate and its key."""
    made = ("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2")
    ours = (folder / "ca.pem", folder / "ca.key")
    call(*made, "-subj", "/CN=Stand", "-out", str(ours[0]), "-keyout", str(ours[1]))
    end, key = folder / "s3.pem", folder / "s3.key"
    signed = ("-CA", str(ours[0]), "-CAkey", str(ours[1]), "-addext", "basicConstraints=critical,CA:false")
    also = ",".join(f"DNS:{name}" for name in names)
    files = ("-out", str(end), "-keyout", str(key))
    call(*made, "-subj", "/CN=s3", *signed, "-addext", f"subjectAltName={also}", *files)
    return end, key
