"""AWS as pods use it: STS for tokens of a cluster, and S3 with the roles and policies of a rehearsed stack.

This STS verifies what AWS documents: the provider, the public keys at the issuer, signature, audience, time, and the
trust policy of the role. moto's own issues credentials for any text.
"""

import json
import subprocess
import sys
import time
from base64 import urlsafe_b64decode
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from botocore.exceptions import ClientError
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA384

from bedplate.plan.fleet import FleetPlan
from bedplate.plan.issuer import pod_role_name
from bedplate.rehearsal.simulation import Aws
from bedplate.rehearsal.stack import SharedState
from bedplate.rehearsal.state import ResourceError
from tests.testlab.fakes.aws import Request, serving
from tests.testlab.fakes.buckets import Call, ObjectStore, Reply, matching_statements

_REFUSED = "<ErrorResponse><Error><Type>Sender</Type><Code>{}</Code><Message>{}</Message></Error></ErrorResponse>"
_SESSION = """<AssumeRoleWithWebIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/">
<AssumeRoleWithWebIdentityResult><Credentials><AccessKeyId>{}</AccessKeyId><SecretAccessKey>{}</SecretAccessKey>
<SessionToken>{}</SessionToken><Expiration>{}</Expiration></Credentials></AssumeRoleWithWebIdentityResult>
</AssumeRoleWithWebIdentityResponse>"""
# Bytes of a coordinate, and of each half of a signature, on P-384.
_HALF = 48


class TokenRefused(Exception):
    """STS refuses a token: the code of AWS and the reason."""

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(f"{code}: {reason}")
        self.code, self.reason = code, reason


class PodStore(ObjectStore):
    """The buckets of a fleet for a session of a role; `kind` is the namespace of its pods."""

    @property
    def role(self) -> str:
        """The role's ARN."""
        return f"arn:aws:iam::{self.plan.account}:role/{pod_role_name(self.plan, self.kind)}"

    def grants(self) -> str:
        """Return the role's policy as the stack declared it."""
        name = pod_role_name(self.plan, self.kind)
        reply = self.aws.call("iam", "get_role_policy", RoleName=name, PolicyName=name)
        return _document(reply["PolicyDocument"])

    def _make(self, name: str, region: str) -> None:
        try:
            super()._make(name, region)
        except (ClientError, ResourceError):
            self.aws.in_region(region).call("s3", "head_bucket", Bucket=name)


@dataclass
class PodCloud:
    """STS and S3 of the account of a plan, whose stack `shared` is deployed in the simulation."""

    plan: FleetPlan
    aws: Aws
    state: SharedState
    sessions: dict[str, PodStore] = field(default_factory=dict)
    url: str = ""
    clock: Callable[[], float] = time.time

    def answer(self, request: Request) -> Reply:
        """Return the response to a request of STS or S3."""
        form = {key: values[0] for key, values in parse_qs(request.body.decode(errors="replace")).items()}
        if form.get("Action") == "AssumeRoleWithWebIdentity":
            try:
                return Reply(200, self.assume(form["RoleArn"], form["WebIdentityToken"]).encode())
            except TokenRefused as error:
                return Reply(400, _REFUSED.format(error.code, error.reason).encode())
        store = next((store for key, store in self.sessions.items() if key in request.headers["Authorization"]), None)
        return store.answer(request, tls="1.3") if store else Reply(403, b"")

    def assume(self, role: str, token: str) -> str:
        """Return the response with credentials of a role. Raises TokenRefused."""
        claims, arn = self._verified(token)
        name = role.rpartition("/")[2]
        try:
            trust = _document(self.aws.call("iam", "get_role", RoleName=name)["Role"]["AssumeRolePolicyDocument"])
        except ResourceError:
            raise TokenRefused("AccessDenied", "no such role") from None
        if not _is_trusted(trust, arn, claims):
            raise TokenRefused("AccessDenied", "Not authorized to perform sts:AssumeRoleWithWebIdentity")
        store = PodStore(self.plan, self.aws, name.rpartition(".")[2])
        self.sessions[store.keys.access_key] = store
        end = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 3600))
        return _SESSION.format(store.keys.access_key, store.keys.secret_key, store.keys.token, end)

    def _verified(self, token: str) -> tuple[Mapping[str, Any], str]:
        """Return the claims of a valid token, and the ARN of its provider. Raises TokenRefused."""
        try:
            head, body, signature = token.strip().split(".")
            header, claims = json.loads(_decoded(head)), json.loads(_decoded(body))
        except ValueError:
            raise TokenRefused("InvalidIdentityToken", "The ID Token provided is not a valid JWT") from None
        host = claims["iss"].removeprefix("https://")
        arn = f"arn:aws:iam::{self.plan.account}:oidc-provider/{host}"
        try:
            provider = self.aws.call("iam", "get_open_id_connect_provider", OpenIDConnectProviderArn=arn)
        except ResourceError:
            message = "No OpenIDConnect provider found in your account"
            raise TokenRefused("InvalidIdentityToken", message) from None
        self._check_signature(claims["iss"], header, f"{head}.{body}", _decoded(signature))
        if claims["exp"] <= self.clock():
            raise TokenRefused("ExpiredTokenException", "Token expired")
        if not {*claims["aud"]} & {*provider["ClientIDList"]}:
            raise TokenRefused("InvalidIdentityToken", "Incorrect token audience")
        return claims, arn

    def _check_signature(self, issuer: str, header: Mapping[str, str], text: str, signature: bytes) -> None:
        discovery = json.loads(self.public(f"{issuer}/.well-known/openid-configuration"))
        if discovery["issuer"] != issuer or header["alg"] not in discovery["id_token_signing_alg_values_supported"]:
            raise TokenRefused("InvalidIdentityToken", "The discovery document is of another issuer")
        keys = {key["kid"]: key for key in json.loads(self.public(discovery["jwks_uri"]))["keys"]}
        key = keys.get(header["kid"])
        if key is None:
            message = "Couldn't retrieve verification key from your identity provider"
            raise TokenRefused("InvalidIdentityToken", message)
        x, y, r, s = (
            int.from_bytes(part, "big")
            for part in (_decoded(key["x"]), _decoded(key["y"]), signature[:_HALF], signature[_HALF:])
        )
        public = ec.EllipticCurvePublicNumbers(x, y, ec.SECP384R1()).public_key()
        try:
            public.verify(encode_dss_signature(r, s), text.encode(), ec.ECDSA(SHA384()))
        except InvalidSignature:
            raise TokenRefused("InvalidIdentityToken", "The signature is invalid") from None

    def public(self, address: str) -> str:
        """Return what S3 gives to anybody at an address over TLS. Raises TokenRefused if it is not public."""
        parts = urlsplit(address)
        bucket, key = (parts.hostname or "").partition(".s3.")[0], parts.path.lstrip("/")
        keys = {"aws:SecureTransport": "true", "s3:TlsVersion": "1.3"}
        policy = self.aws.call("s3", "get_bucket_policy", Bucket=bucket)["Policy"]
        call = Call("s3:GetObject", f"arn:aws:s3:::{bucket}/{key}", keys)
        effects = {statement["Effect"] for statement in matching_statements(policy, call)}
        block = self.aws.call("s3", "get_public_access_block", Bucket=bucket)["PublicAccessBlockConfiguration"]
        if effects != {"Allow"} or block["RestrictPublicBuckets"] or parts.scheme != "https":
            raise TokenRefused("InvalidIdentityToken", f"{address} is not public")
        body: bytes = self.aws.call("s3", "get_object", Bucket=bucket, Key=key)["Body"].read()
        return body.decode()

    @contextmanager
    def serving(self) -> Iterator[None]:
        """Serve STS and S3 over HTTP at `url`."""
        cloud = self

        class Handler(BaseHTTPRequestHandler):
            def do_any(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                headers = {name.title(): value for name, value in self.headers.items()}
                reply = cloud.answer(Request(self.command, self.path, headers, body))
                self.send_response(reply.status)
                for name in reply.headers.keys() & {"ETag", "Content-Type", "Last-Modified", "x-amz-version-id"}:
                    self.send_header(name, reply.headers[name])
                self.send_header("Content-Length", str(len(reply.body)))
                self.end_headers()
                self.wfile.write(reply.body)

            do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = do_any  # noqa: N815  names of http.server

            def log_message(self, *args: object) -> None:
                """Keep the tests' output clean."""

        with serving(Handler) as self.url:
            yield

    def in_pod(self, settings: Mapping[str, str], code: str) -> subprocess.CompletedProcess[str]:
        """Run code with a client `s3` of boto3 in a process that has the settings of a pod only."""
        program = f"import boto3\ns3 = boto3.client('s3')\n{code}"
        endpoints = {"AWS_ENDPOINT_URL_STS": self.url, "AWS_ENDPOINT_URL_S3": self.url, "AWS_MAX_ATTEMPTS": "1"}
        command = [sys.executable, "-c", program]
        return subprocess.run(
            command, env={**settings, **endpoints}, cwd=Path("/"), capture_output=True, text=True, check=False
        )


def _document(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _decoded(text: str) -> bytes:
    return urlsafe_b64decode(text + "=" * (-len(text) % 4))


def _is_trusted(trust: str, provider: str, claims: Mapping[str, Any]) -> bool:
    """Return whether a trust policy lets a token of a provider assume its role."""
    host = provider.partition("oidc-provider/")[2]
    values = {f"{host}:sub": {claims["sub"]}, f"{host}:aud": {*claims["aud"]}}
    for statement in json.loads(trust)["Statement"]:
        equals = statement["Condition"]["StringEquals"]
        assert statement["Effect"] == "Allow", "only statements that allow are known"
        assert statement["Condition"].keys() == {"StringEquals"}, "only StringEquals is known"
        is_action = "sts:AssumeRoleWithWebIdentity" in statement["Action"]
        is_provider = provider in statement["Principal"].get("Federated", ())
        if is_action and is_provider and all(values[key] & {*allowed} for key, allowed in equals.items()):
            return True
    return False
