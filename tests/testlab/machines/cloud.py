"""The simulated environment of a cloud node: the instance metadata service, and S3 over TLS.

Names and addresses are those of AWS, so a test node needs no other settings than a real one. /etc/hosts replaces the
name server, and the AWS CLI also trusts a certificate authority of the test.
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
from tests.testlab.machines.node_lab import Node, bind_socket
from tests.testlab.network.netlab import LabHost

# The address of this machine's loopback interface in slirp4netns.
HOST_LOOPBACK = "10.0.2.2"


def seen_by_nodes(url: str) -> str:
    """Return the URL under which test nodes reach a server of this machine."""
    return url.replace("127.0.0.1", HOST_LOOPBACK)


METADATA, S3 = "169.254.169.254", "198.51.100.3"
# Headers of the simulation's own connection.
_HOP_HEADERS = frozenset({"connection", "content-length", "date", "keep-alive", "server", "transfer-encoding"})


class _Handler(BaseHTTPRequestHandler):
    store: ObjectStore
    connection: ssl.SSLSocket
    # Clients send `Expect: 100-continue` before large bodies.
    protocol_version = "HTTP/1.1"

    def __getattr__(self, name: str) -> Callable[[], None]:
        """Handle all methods in one function; the store distinguishes them."""
        if name.startswith("do_"):
            return self._serve
        raise AttributeError(name)

    def _serve(self) -> None:
        title_case = {name.title(): value for name, value in self.headers.items()}
        request = Request(self.command, self.path, title_case, self._body())
        reply = self.store.answer(request, tls=(self.connection.version() or "").removeprefix("TLSv"))
        self.send_response(reply.status)
        headers = {name: value for name, value in reply.headers.items() if name.lower() not in _HOP_HEADERS}
        length = reply.headers.get("Content-Length", len(reply.body)) if self.command == "HEAD" else len(reply.body)
        for name, value in {**headers, "Content-Length": str(length)}.items():
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
        """Log nothing."""


@contextmanager
def serve_buckets(node: Node, store: ObjectStore, folder: Path) -> Iterator[None]:
    """Serve S3 buckets to a node on which the AWS CLI is installed."""
    node.run("".join(f"echo {S3} {host} >> /etc/hosts\n" for host in store.hosts))
    with serve_objects(node.workstation.host, store, folder):
        trust_store(node, folder)
        yield


@contextmanager
def serve_objects(host: LabHost, store: ObjectStore, folder: Path) -> Iterator[None]:
    """Serve S3 buckets at the address S3 of a lab host, with a new certificate in a folder."""
    host.run("ip", "address", "replace", f"{S3}/32", "dev", "lo")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*_certificate(folder, store.hosts))
    listener = context.wrap_socket(bind_socket(host, S3, 443), server_side=True)
    with serving(type("Handler", (_Handler,), {"store": store}), listener):
        yield


def trust_store(node: Node, folder: Path) -> None:
    """Let the AWS CLI of a node trust the certificate of that folder."""
    (trusted,) = node.root.glob("opt/bedplate-aws/lib/python3*/site-packages/awscli/botocore/cacert.pem")
    trusted.write_text(trusted.read_text() + (folder / "ca.pem").read_text())


@contextmanager
def serve_role_credentials(node: Node, store: ObjectStore, hops: int) -> Iterator[None]:
    """Serve the credentials of the instance role; tokens have this hop limit."""
    workstation = node.workstation.host
    workstation.run("ip", "address", "replace", f"{METADATA}/32", "dev", "lo")
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
    with metadata_service(facts, bind_socket(workstation, METADATA, 80), hops):
        yield


def _certificate(folder: Path, names: tuple[str, ...]) -> tuple[Path, Path]:
    """Create a certificate authority, and a certificate for these names; return the certificate and its key."""
    command = (
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:P-256",
        "-nodes",
        "-days",
        "2",
    )
    authority = (folder / "ca.pem", folder / "ca.key")
    call(*command, "-subj", "/CN=Test", "-out", str(authority[0]), "-keyout", str(authority[1]))
    certificate, key = folder / "s3.pem", folder / "s3.key"
    signed = ("-CA", str(authority[0]), "-CAkey", str(authority[1]), "-addext", "basicConstraints=critical,CA:false")
    alternatives = ",".join(f"DNS:{name}" for name in names)
    files = ("-out", str(certificate), "-keyout", str(key))
    call(*command, "-subj", "/CN=s3", *signed, "-addext", f"subjectAltName={alternatives}", *files)
    return certificate, key
