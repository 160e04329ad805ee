"""The issuer of the cluster's service account tokens: what it publishes, and the AWS roles of people's pods.

AWS verifies a pod's token with the keys at the issuer's address: a bucket of the home region, of which two objects are
public. Decision: docs/adr/0035-issuer-in-a-bucket.md.
"""

import json
from base64 import b64decode, urlsafe_b64encode
from collections.abc import Mapping
from hashlib import sha256

from bedplate.plan.cluster import KEY_SET, cluster_plan, person_name
from bedplate.plan.fleet import FleetPlan, cached_on_plan

AUDIENCE = "sts.amazonaws.com"
ACCOUNT = "default"
"""The service account of people's pods, in the namespace of each person."""
TOKEN_FILE = "/var/run/secrets/aws/token"  # noqa: S105  a path
DISCOVERY = ".well-known/openid-configuration"
# The DER of a public key on P-384 ends with its two coordinates.
_COORDINATE = 48


def has_pod_roles(plan: FleetPlan) -> bool:
    """Return whether pods of people have roles: the fleet has a cluster, and does not decline them."""
    return bool(plan.control_plane and plan.control_plane.pod_roles)


@cached_on_plan
def issuer_documents(plan: FleetPlan) -> Mapping[str, str]:
    """Return the public documents by their keys in the bucket; empty before the lock has the key of the tokens."""
    cluster = cluster_plan(plan)
    if cluster is None or not plan.record.account_keys:
        return {}
    discovery = {
        "issuer": cluster.issuer,
        "jwks_uri": cluster.key_set,
        # Nobody logs in there. EKS publishes the same value.
        "authorization_endpoint": "urn:kubernetes:programmatic_authorization",
        "response_types_supported": ["id_token"],
        "subject_types_supported": ["public"],
        "claims_supported": ["sub", "iss"],
        "id_token_signing_alg_values_supported": ["ES384"],
    }
    keys = {"keys": [_web_key(b64decode(key)) for key in plan.record.account_keys]}
    return {DISCOVERY: json.dumps(discovery), KEY_SET: json.dumps(keys)}


def _web_key(key: bytes) -> dict[str, str]:
    """Return a public key in its JSON form; `kid` is what the API server writes into tokens."""
    x, y = key[-2 * _COORDINATE : -_COORDINATE], key[-_COORDINATE:]
    return {
        "use": "sig",
        "kty": "EC",
        "kid": _base64(sha256(key).digest()),
        "crv": "P-384",
        "alg": "ES384",
        "x": _base64(x),
        "y": _base64(y),
    }


def _base64(data: bytes) -> str:
    return urlsafe_b64encode(data).decode().rstrip("=")


def pod_role_name(plan: FleetPlan, namespace: str) -> str:
    """Return the name of the role of the pods in a namespace; no fleet has a dot in its name."""
    return f"{plan.name}.pods.{namespace}"


def pod_settings(plan: FleetPlan, namespace: str) -> Mapping[str, str]:
    """Return the environment with which SDKs of AWS use a pod's token; boto3 ignores AWS_REGION."""
    return {
        "AWS_ROLE_ARN": f"arn:aws:iam::{plan.account}:role/{pod_role_name(plan, namespace)}",
        "AWS_WEB_IDENTITY_TOKEN_FILE": TOKEN_FILE,
        "AWS_REGION": plan.home.name,
        "AWS_DEFAULT_REGION": plan.home.name,
    }


def pod_subject(person: str) -> str:
    """Return the subject of the tokens of a person's pods."""
    return f"system:serviceaccount:{person_name(person)}:{ACCOUNT}"
