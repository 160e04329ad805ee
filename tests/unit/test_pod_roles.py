"""AWS roles of people's pods: the issuer's documents, and what STS and S3 do with tokens under the rehearsed stack."""

import json
import time
from base64 import b64decode, urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA384
from cryptography.hazmat.primitives.serialization import load_der_public_key

from bedplate.kubernetes.authorities import Authorities, new_authorities
from bedplate.operate.rehearsal import waves
from bedplate.permissions import pod_permissions, policy
from bedplate.plan import FleetPlan
from bedplate.plan.cluster import as_node, cluster_plan
from bedplate.plan.issuer import AUDIENCE, DISCOVERY, issuer_documents, pod_settings, pod_subject
from bedplate.rehearsal.simulation import running
from bedplate.rehearsal.stack import SharedState, run
from roles.control.role import member_documents
from stacks.identity.pods import issuer_policy
from stacks.storage.buckets import bucket_policy
from tests.testlab.fakes.buckets import Call, allowed, matching_statements
from tests.testlab.fakes.pods import PodCloud, TokenRefused
from tests.testlab.fleets.variants import lab_plan

ISSUER = "https://lab-issuer-111122223333-us-west-2.s3.us-west-2.amazonaws.com"
RESULTS = "lab-results-111122223333-us-west-2"
ROLE = "arn:aws:iam::111122223333:role/lab.pods."


def plan_with(*authorities: Authorities) -> FleetPlan:
    """Return the plan of the lab whose lock has the keys of these authorities."""
    plan = lab_plan()
    keys = tuple(authority.account_key for authority in authorities)
    return replace(plan, record=replace(plan.record, account_keys=keys))


@pytest.fixture(scope="module")
def authorities() -> Authorities:
    """Return the authorities of the lab's cluster."""
    return new_authorities("lab", datetime.now(UTC))


@pytest.fixture(scope="module")
def cloud(authorities: Authorities) -> Iterator[PodCloud]:
    """Yield STS and S3 after the deployment of the shared stack."""
    plan = plan_with(authorities)
    with running(plan.account) as simulation:
        state = SharedState(simulation)
        assert not run(waves(plan, ["shared"])[0][0], state).failures
        yield PodCloud(plan, simulation.region("us-west-2"), state)


def token(key: ec.EllipticCurvePrivateKey, key_id: str = "", **changes: object) -> str:
    """Return a token as the API server signs it for a pod of grace, with changes of its claims."""
    now = int(time.time())
    times = {"exp": now + 3600, "iat": now, "nbf": now}
    claims = {"iss": ISSUER, "aud": [AUDIENCE], "sub": pod_subject("grace"), **times, **changes}
    header = {"alg": "ES384", "kid": key_id or _key_id(key)}
    text = ".".join(_encoded(json.dumps(part).encode()) for part in (header, claims))
    numbers = decode_dss_signature(key.sign(text.encode(), ec.ECDSA(SHA384())))
    return f"{text}.{_encoded(b''.join(number.to_bytes(48, 'big') for number in numbers))}"


def _key_id(key: ec.EllipticCurvePrivateKey) -> str:
    return str(json.loads(issuer_documents(plan_with(_with_key(key)))["openid/v1/jwks"])["keys"][0]["kid"])


def _with_key(key: ec.EllipticCurvePrivateKey) -> Authorities:
    return replace(new_authorities("lab", datetime.now(UTC)), accounts=key)


def _encoded(data: bytes) -> str:
    return urlsafe_b64encode(data).decode().rstrip("=")


def test_the_documents_have_every_recorded_key(authorities: Authorities) -> None:
    """While a key is replaced, tokens of both keys are valid. Without a recorded key there is nothing to publish."""
    both = plan_with(authorities, new_authorities("lab", datetime.now(UTC)))
    documents = issuer_documents(both)
    discovery, keys = json.loads(documents[DISCOVERY]), json.loads(documents["openid/v1/jwks"])["keys"]

    assert (discovery["issuer"], discovery["jwks_uri"]) == (ISSUER, f"{ISSUER}/openid/v1/jwks")
    for recorded, key in zip(both.record.account_keys, keys, strict=True):
        public = load_der_public_key(b64decode(recorded))
        assert isinstance(public, ec.EllipticCurvePublicKey)
        numbers = public.public_numbers()
        coordinates = (int.from_bytes(urlsafe_b64decode(f"{key[name]}="[:64]), "big") for name in "xy")
        assert (numbers.x, numbers.y) == tuple(coordinates)
        assert key["kid"] == _encoded(sha256(b64decode(recorded)).digest())
    assert issuer_documents(lab_plan()) == {}


def test_the_api_server_signs_as_the_published_issuer() -> None:
    """Tokens that kubeadm's own issuer has signed stay valid in the cluster."""
    cluster = cluster_plan(lab_plan())
    assert cluster
    node = as_node(lab_plan(), cluster.members[0].name)
    assert node
    arguments = [tuple(entry.values()) for entry in member_documents(node)[1]["apiServer"]["extraArgs"]]

    assert arguments[:3] == [
        ("service-account-issuer", ISSUER),
        ("service-account-issuer", "https://kubernetes.default.svc.cluster.local"),
        ("service-account-jwks-uri", f"{ISSUER}/openid/v1/jwks"),
    ]


def test_only_two_objects_are_public() -> None:
    """Everybody reads them over TLS, and nobody lists or writes."""
    text, bucket = issuer_policy(lab_plan()), f"arn:aws:s3:::{ISSUER[8:].partition('.')[0]}"
    keys = {"aws:SecureTransport": "true", "s3:TlsVersion": "1.3"}

    def effects(action: str, resource: str, **changes: str) -> set[str]:
        call = Call(action, resource, {**keys, **changes})
        return {statement["Effect"] for statement in matching_statements(text, call)}

    for key in (DISCOVERY, "openid/v1/jwks"):
        assert effects("s3:GetObject", f"{bucket}/{key}") == {"Allow"}
        assert "Deny" in effects("s3:GetObject", f"{bucket}/{key}", **{"aws:SecureTransport": "false"})
        assert effects("s3:PutObject", f"{bucket}/{key}") == set()
    assert effects("s3:GetObject", f"{bucket}/other") == effects("s3:ListBucket", bucket) == set()


def test_policies_fit_their_quotas() -> None:
    """The policy of a bucket does not grow with people; a role's own has its limit."""
    plan = lab_plan()
    person = plan.accounts.people[0]
    many = tuple(replace(person, name=f"person-{number}") for number in range(200))
    crowd = replace(plan, accounts=replace(plan.accounts, people=many))

    assert bucket_policy(crowd, plan.buckets[0]) == bucket_policy(plan, plan.buckets[0])
    assert len("".join(policy(*pod_permissions(plan, "a" * 32)).split())) < 10_240


@pytest.mark.parametrize(
    ("action", "key", "is_allowed"),
    [
        ("s3:GetObject", "ada/data", True),
        ("s3:PutObject", "grace/model", True),
        ("s3:PutObject", "ada/model", False),
        ("s3:DeleteObject", "grace", False),
    ],
)
def test_a_persons_role_reads_everything_and_writes_its_own(action: str, key: str, *, is_allowed: bool) -> None:
    """The policies of the role and of the bucket together: a key that only begins like the name is another one."""
    plan = lab_plan()
    bucket = next(bucket for bucket in plan.buckets if bucket.name == RESULTS)
    keys = {"aws:SecureTransport": "true", "s3:TlsVersion": "1.3", "aws:PrincipalArn": f"{ROLE}grace"}
    call = Call(action, f"arn:aws:s3:::{RESULTS}/{key}", keys | {"aws:PrincipalIsAWSService": "false"})

    assert allowed(call, policy(*pod_permissions(plan, "grace")), bucket_policy(plan, bucket)) == is_allowed


@pytest.mark.nightly
def test_a_pod_uses_buckets_by_its_own_identity(cloud: PodCloud, authorities: Authorities, tmp_path: Path) -> None:
    """The role reads every object of the fleet's buckets, and writes below its person's name only."""
    file = tmp_path / "token"
    file.write_text(token(authorities.accounts))
    settings = {**pod_settings(cloud.plan, "grace"), "AWS_WEB_IDENTITY_TOKEN_FILE": str(file)}
    code = f"""
def attempt(call, **words):
    try:
        return getattr(s3, call)(Bucket='{RESULTS}', **words)
    except s3.exceptions.ClientError as error:
        return error.response['Error']['Code']
attempt('put_object', Key='grace/model', Body=b'weights')
print(attempt('get_object', Key='grace/model')['Body'].read())
print(attempt('put_object', Key='ada/model', Body=b'weights'), attempt('delete_object', Key='grace'))
print(attempt('get_object', Key='ada/data')['Body'].read())
"""
    with cloud.serving():
        cloud.assume(f"{ROLE}grace", file.read_text())  # makes the buckets
        next(iter(cloud.sessions.values())).put(RESULTS, "ada/data", b"images")
        done = cloud.in_pod(settings, code)

    assert done.stdout.splitlines() == ["b'weights'", "AccessDenied AccessDenied", "b'images'"], done.stderr


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"sub": pod_subject("ada")}, "AccessDenied"),
        ({"sub": "system:serviceaccount:grace:other"}, "AccessDenied"),
        ({"sub": "system:serviceaccount:people:grace"}, "AccessDenied"),
        ({"exp": 1}, "ExpiredTokenException"),
        ({"aud": [ISSUER]}, "Incorrect token audience"),
        ({"iss": ISSUER.replace("lab", "lab-two", 1)}, "No OpenIDConnect provider"),
    ],
)
def test_other_tokens_of_the_cluster_are_refused(
    cloud: PodCloud, authorities: Authorities, changes: Mapping[str, Any], code: str
) -> None:
    """Of another person or account, expired, for the API, or of another fleet."""
    with pytest.raises(TokenRefused, match=code):
        cloud.assume(f"{ROLE}grace", token(authorities.accounts, **changes))


def test_tokens_of_other_keys_are_refused(cloud: PodCloud, authorities: Authorities) -> None:
    """A key that is not published any more, and a foreign key under the name of the published one."""
    other = new_authorities("lab", datetime.now(UTC)).accounts

    with pytest.raises(TokenRefused, match="retrieve verification key"):
        cloud.assume(f"{ROLE}grace", token(other))
    with pytest.raises(TokenRefused, match="signature is invalid"):
        cloud.assume(f"{ROLE}grace", token(other, _key_id(authorities.accounts)))


def test_the_role_of_a_removed_person_is_deleted(cloud: PodCloud, authorities: Authorities) -> None:
    """Their pods' credentials are then worth nothing. Without `pod_roles` nobody has a role, and nothing is public."""
    control = cloud.plan.control_plane
    assert control
    left = replace(cloud.plan, accounts=replace(cloud.plan.accounts, people=cloud.plan.accounts.people[1:]))
    declined = replace(cloud.plan, control_plane=replace(control, pod_roles=False))
    state = cloud.state

    assert not run(waves(left, ["shared"])[0][0], state).failures
    cloud.assume(f"{ROLE}grace", token(authorities.accounts))
    with pytest.raises(TokenRefused, match="no such role"):
        cloud.assume(f"{ROLE}ada", token(authorities.accounts, sub=pod_subject("ada")))

    assert not run(waves(declined, ["shared"])[0][0], state).failures
    with pytest.raises(TokenRefused, match="No OpenIDConnect provider"):
        cloud.assume(f"{ROLE}grace", token(authorities.accounts))
    names = {bucket["Name"] for bucket in cloud.aws.call("s3", "list_buckets")["Buckets"]}
    assert names.isdisjoint({cloud.plan.issuer_bucket.name})
