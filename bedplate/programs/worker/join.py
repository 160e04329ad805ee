"""Join the cluster: request a client certificate for kubelet with a bootstrap token, which is kept in memory only.

In the cloud the machine publishes the SHA-256 of its public key first, where only it can write: the approver compares
it, so a token alone is of no use.
"""

import base64
import json
import ssl
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from ..program import ProgramError, output, replace, write_text
from .machine import AUTHORITY, KUBECONFIG, ROOT, Settings, node_name

SETTINGS_PROGRAM = "/usr/local/lib/bedplate/kubelet-settings"
_PKI, _STATUS = Path("var/lib/kubelet/pki"), Path("var/lib/bedplate/status/join.json")
_CURRENT = _PKI / "kubelet-client-current.pem"
_KEY = _PKI / "bedplate-join.key"
_REQUESTS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
_WAIT, _PAUSE = 120.0, 0.5
_UNAUTHORIZED = 401
# Bytes of a reply; a request for a certificate has about 4 KB.
_LARGEST = 1 << 20
# kubelet renews its certificate long before.
_LEAST_SECONDS = "3600"


@dataclass(frozen=True)
class Api:
    """The API server, with a bootstrap token; it must have a certificate of the cluster's authority."""

    server: str
    authority: Path
    token: str

    def call(self, method: str, path: str, body: object = None) -> dict[str, Any]:
        """Return the object in a reply. Raises ProgramError."""
        request = urllib.request.Request(  # noqa: S310  https only: the settings hold the address
            f"{self.server}{path}",
            None if body is None else json.dumps(body).encode(),
            {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"},
            method=method,
        )
        handlers = (urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=_context(self.authority)))
        try:
            with urllib.request.build_opener(*handlers).open(request, timeout=20) as reply:
                document: dict[str, Any] = json.loads(reply.read(_LARGEST))
        except urllib.error.HTTPError as error:
            raise ProgramError(_refusal(error)) from None
        except (urllib.error.URLError, OSError, ValueError, RecursionError) as error:
            raise ProgramError(_no_answer(self.server, error)) from None
        return document


def _context(authority: Path) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=str(authority))
    except (OSError, ssl.SSLError):
        raise ProgramError(f"cannot read {authority}: apply the role kubernetes after `bedplate kube init`") from None


def _refusal(error: urllib.error.HTTPError) -> str:
    if error.code == _UNAUTHORIZED:
        return "the API server refused the token: it is wrong or has expired"
    try:
        message = json.loads(error.read(_LARGEST))["message"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        message = error.reason
    return f"the API server refused the request: {message}"


def _no_answer(server: str, error: Exception) -> str:
    reason = getattr(error, "reason", error)
    if isinstance(reason, ssl.SSLCertVerificationError):
        return (
            f"{server} has no valid certificate of the cluster's authority: {reason.verify_message}; "
            "check the clock of this machine and `bedplate kube status`"
        )
    return f"{server} does not answer: {reason}"


def join(settings: Settings, given_token: str, root: Path = ROOT) -> bool:
    """Join, unless the machine has a valid certificate; return whether it is new. Raises ProgramError."""
    if _is_joined(root):
        return False
    output(SETTINGS_PROGRAM)
    name = node_name(root)
    request, key = _make_request(name, root)
    token = given_token
    if settings.cloud:
        _publish(settings, key, root)
        token = output(settings.bootstrap, "print_join_token").strip()
    if not token:
        raise ProgramError("no token: run `bedplate kube join` for a machine of a site")
    api = Api(settings.server, root / AUTHORITY, token)
    _write(root, settings.server, _certificate(api, name, request))
    return True


def _is_joined(root: Path) -> bool:
    """Return whether kubelet has a certificate of this cluster's authority that is valid for an hour."""
    current = str(root / _CURRENT)
    try:
        output("openssl", "x509", "-noout", "-checkend", _LEAST_SECONDS, "-in", current)
        output("openssl", "verify", "-CAfile", str(root / AUTHORITY), current)
    except ProgramError:
        return False
    return (root / KUBECONFIG).exists()


def _make_request(name: str, root: Path) -> tuple[str, str]:
    """Return a signing request, and the SHA-256 of its key; the key is kept for another attempt."""
    key = root / _KEY
    if not key.exists() or not key.stat().st_size:
        write_text(key, output("openssl", "ecparam", "-name", "prime256v1", "-genkey", "-noout"), 0o600)
    subject = f"/O=system:nodes/CN=system:node:{name}"
    request = output("openssl", "req", "-new", "-sha256", "-key", str(key), "-subj", subject)
    public = output("openssl", "pkey", "-in", str(key), "-pubout")
    body = "".join(line for line in public.splitlines() if not line.startswith("-"))
    return request, sha256(base64.b64decode(body)).hexdigest()


def _publish(settings: Settings, key: str, root: Path) -> None:
    write_text(root / _STATUS, json.dumps({"version": 1, "key": key}) + "\n")
    output(settings.bootstrap, "put_status")


def _certificate(api: Api, name: str, request: str) -> str:
    """Return the certificate after the approver has answered. Raises ProgramError."""
    spec = {
        "request": base64.b64encode(request.encode()).decode(),
        "signerName": "kubernetes.io/kube-apiserver-client-kubelet",
        "usages": ["digital signature", "client auth"],
    }
    kind = {"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest"}
    created = api.call("POST", _REQUESTS, {**kind, "metadata": {"generateName": "join-"}, "spec": spec})
    path, deadline = f"{_REQUESTS}/{created['metadata']['name']}", time.monotonic() + _WAIT
    while time.monotonic() < deadline:
        status = api.call("GET", path).get("status", {})
        if "certificate" in status:
            return base64.b64decode(status["certificate"]).decode()
        for condition in status.get("conditions", ()):
            if condition["type"] in {"Denied", "Failed"}:
                raise ProgramError(f"the cluster refused {name}: {condition.get('message', condition['type'])}")
        time.sleep(_PAUSE)
    raise ProgramError(f"no answer to the request of {name} within {_WAIT:.0f} s: is the approver running?")


def _write(root: Path, server: str, certificate: str) -> None:
    """Write certificate and key where kubelet keeps and renews them, then the configuration with which it starts."""
    pair = root / _PKI / f"kubelet-client-{time.strftime('%Y-%m-%d-%H-%M-%S')}.pem"
    write_text(pair, certificate + (root / _KEY).read_text(encoding="utf-8"), 0o600)
    link = root / _PKI / "kubelet-client-current.new"
    link.unlink(missing_ok=True)
    link.symlink_to(pair)
    replace(link, root / _CURRENT)
    file = str(root / _CURRENT)
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "default",
        "clusters": [
            {"name": "default", "cluster": {"server": server, "certificate-authority": str(root / AUTHORITY)}}
        ],
        "users": [{"name": "default", "user": {"client-certificate": file, "client-key": file}}],
        "contexts": [{"name": "default", "context": {"cluster": "default", "user": "default"}}],
    }
    write_text(root / KUBECONFIG, json.dumps(document, indent=1) + "\n", 0o600)
    (root / _KEY).unlink()
