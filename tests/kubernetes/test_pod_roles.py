"""Pods of people use AWS by tokens of a real API server, with the product's issuer, key, policy and stack.

STS and S3 are stand-ins that verify tokens and policies; no kubelet fetches the tokens.
"""

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from bedplate.kubernetes.apply import apply_objects
from bedplate.kubernetes.authorities import Authorities, new_authorities
from bedplate.kubernetes.client import ClusterClient
from bedplate.kubernetes.desired import people_objects, pod_role_objects, policy_objects
from bedplate.operate.rehearsal import waves
from bedplate.plan import FleetPlan
from bedplate.plan.cluster import as_node, cluster_plan
from bedplate.plan.issuer import AUDIENCE, issuer_documents
from bedplate.rehearsal.simulation import running
from bedplate.rehearsal.stack import SharedState, run
from roles.control.role import member_documents
from tests.testlab.fakes.pods import PodCloud, TokenRefused
from tests.testlab.fleets.variants import lab_plan
from tests.testlab.kubernetes.binaries import find_programs
from tests.testlab.kubernetes.control_plane import ControlPlane
from tests.testlab.run import lack

ROLE = "arn:aws:iam::111122223333:role/lab.pods."
RESULTS = "lab-results-111122223333-us-west-2"


@pytest.fixture(scope="module")
def authorities() -> Authorities:
    """Return the authorities of the cluster."""
    return new_authorities("lab", datetime.now(UTC))


def plan_with(*keys: str) -> FleetPlan:
    """Return the plan of the lab with recorded keys of tokens."""
    plan = lab_plan()
    return replace(plan, record=replace(plan.record, account_keys=keys))


@pytest.fixture(scope="module")
def plan(authorities: Authorities) -> FleetPlan:
    """Return the plan of the lab, whose lock has the key."""
    return plan_with(authorities.account_key)


def restart_with(plane: ControlPlane, authorities: Authorities) -> None:
    """Restart the API server with the key of these authorities."""
    plane.stop_server()
    for name in ("sa.key", "sa.pub"):
        (plane.folder / name).write_text(authorities.files()[name])
    plane.start_server()


@pytest.fixture(scope="module")
def plane(plan: FleetPlan, authorities: Authorities) -> Iterator[ControlPlane]:
    """Yield a control plane with the issuers of a member, and what people have in the cluster."""
    programs = find_programs()
    if programs is None:
        lack("needs the programs of Kubernetes: `python -m tests.testlab.kubernetes` builds them")
    cluster = cluster_plan(plan)
    assert cluster
    node = as_node(plan, cluster.members[0].name)
    assert node
    arguments = member_documents(node)[1]["apiServer"]["extraArgs"]
    issuers = [f"--{item['name']}={item['value']}" for item in arguments if item["name"].startswith("service-account-")]
    with ControlPlane(programs, issuers=issuers) as plane:
        restart_with(plane, authorities)
        people = people_objects(plan.accounts, cluster.pods)
        objects = (*policy_objects(cluster.version), *pod_role_objects(plan, cluster), *people)
        apply_objects(ClusterClient(plane.client()), objects)
        for name in ("ada", "grace"):
            plane.wait_for_namespace(name)
        yield plane


@pytest.fixture(scope="module")
def cloud(plan: FleetPlan) -> Iterator[PodCloud]:
    """Yield STS and S3 after the deployment of the shared stack."""
    with running(plan.account) as simulation:
        state = SharedState(simulation)
        assert not run(waves(plan, ["shared"])[0][0], state).failures
        cloud = PodCloud(plan, simulation.region("us-west-2"), state)
        with cloud.serving():
            yield cloud


def token(plane: ControlPlane, person: str, *options: str) -> str:
    """Return a token of a person's pods for AWS."""
    words = options or (f"--audience={AUDIENCE}",)
    return plane.kubectl("create", "token", "default", "-n", person, "--duration=1h", *words).strip()


def test_what_is_published_is_what_the_api_server_says(plane: ControlPlane, plan: FleetPlan) -> None:
    """The issuer, the place of the keys and each key, under the same id."""
    published = {key: json.loads(text) for key, text in issuer_documents(plan).items()}
    own = {key: json.loads(plane.kubectl("get", "--raw", f"/{key}")) for key in published}

    (discovery, keys), (own_discovery, own_keys) = published.values(), own.values()
    assert discovery.items() >= own_discovery.items()
    assert keys == own_keys


def test_a_labelled_pod_gets_the_settings(plane: ControlPlane, plan: FleetPlan) -> None:
    """Each container has the variables and the token of its namespace; other pods, also of the same person, do not."""
    cases: dict[str, dict[str, Any]] = {
        "plain": {},
        "bare": {"automountServiceAccountToken": False},
        "full": {"initContainers": [_container("first")], "volumes": [{"name": "scratch", "emptyDir": {}}]},
    }
    for name, spec in cases.items():
        pod = _created(plane, "grace", name, {"bedplate/aws": ""}, spec)
        for container in (*pod["spec"]["containers"], *pod["spec"].get("initContainers", ())):
            assert {item["name"]: item["value"] for item in container["env"]} == {
                "OWN": "1",
                **_settings(plan, "grace"),
            }
            assert "/var/run/secrets/aws" in {mount["mountPath"] for mount in container["volumeMounts"]}
        (volume,) = (item for item in pod["spec"]["volumes"] if item["name"] == "bedplate-aws")
        source = {"serviceAccountToken": {"audience": AUDIENCE, "expirationSeconds": 3600, "path": "token"}}
        assert volume["projected"]["sources"] == [source]

    unlabelled = _created(plane, "grace", "unlabelled", {}, {})
    assert [item["name"] for item in unlabelled["spec"]["containers"][0]["env"]] == ["OWN"]


def _settings(plan: FleetPlan, person: str) -> Mapping[str, str]:
    return {
        "AWS_ROLE_ARN": f"{ROLE}{person}",
        "AWS_WEB_IDENTITY_TOKEN_FILE": "/var/run/secrets/aws/token",
        "AWS_REGION": plan.home.name,
        "AWS_DEFAULT_REGION": plan.home.name,
    }


def _container(name: str) -> dict[str, Any]:
    return {"name": name, "image": "none", "env": [{"name": "OWN", "value": "1"}]}


def _created(
    plane: ControlPlane, person: str, name: str, labels: Mapping[str, str], spec: Mapping[str, Any]
) -> dict[str, Any]:
    """Return a pod as the API server has stored it."""
    metadata = {"name": name, "namespace": person, "labels": labels}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"containers": [_container("main")], **spec},
    }
    plane.kubectl("apply", "-f", "-", text=json.dumps(pod))
    return dict(json.loads(plane.kubectl("get", "pod", name, "-n", person, "-o", "json")))


def test_a_pod_reads_and_writes_by_its_own_token(plane: ControlPlane, cloud: PodCloud, tmp_path: Path) -> None:
    """The pod uses boto3, the environment that the API server gave it, and a token that is bound to the pod."""
    pod = _created(plane, "grace", "s3", {"bedplate/aws": ""}, {})
    environment = {item["name"]: item["value"] for item in pod["spec"]["containers"][0]["env"]}
    bound = ("--bound-object-kind=Pod", "--bound-object-name=s3", f"--audience={AUDIENCE}")
    file = tmp_path / "token"
    file.write_text(token(plane, "grace", *bound))
    cloud.assume(f"{ROLE}grace", file.read_text())  # makes the buckets
    code = f"""
s3.put_object(Bucket='{RESULTS}', Key='grace/model', Body=b'weights')
print(s3.get_object(Bucket='{RESULTS}', Key='grace/model')['Body'].read())
try:
    s3.put_object(Bucket='{RESULTS}', Key='ada/model', Body=b'weights')
except s3.exceptions.ClientError as error:
    print(error.response['Error']['Code'])
"""

    done = cloud.in_pod({**environment, "AWS_WEB_IDENTITY_TOKEN_FILE": str(file)}, code)

    assert done.stdout.splitlines() == ["b'weights'", "AccessDenied"], done.stderr


def test_other_tokens_are_refused(plane: ControlPlane, cloud: PodCloud) -> None:
    """Of another person, of another account, for the API, and after their end."""
    person = plane.kubectl("create", "token", "grace", "-n", "people", f"--audience={AUDIENCE}").strip()
    refusals = {
        "AccessDenied": (token(plane, "ada"), person),
        "Incorrect token audience": (token(plane, "grace", "--audience=vault"), token(plane, "grace", "--duration=1h")),
    }
    for code, tokens in refusals.items():
        for text in tokens:
            with pytest.raises(TokenRefused, match=code):
                cloud.assume(f"{ROLE}grace", text)
    later = replace(cloud, clock=lambda: time.time() + 3660)
    with pytest.raises(TokenRefused, match="ExpiredTokenException"):
        later.assume(f"{ROLE}grace", token(plane, "grace"))


def test_a_new_key_is_published_next_to_the_old_one(
    plane: ControlPlane, cloud: PodCloud, authorities: Authorities
) -> None:
    """Tokens of both are accepted then, and those of the old key no more once only the new one is published."""
    old, other = token(plane, "grace"), new_authorities("lab", datetime.now(UTC))
    restart_with(plane, other)
    new = token(plane, "grace")

    with pytest.raises(TokenRefused, match="retrieve verification key"):
        cloud.assume(f"{ROLE}grace", new)
    _publish(cloud, other.account_key, authorities.account_key)
    for text in (old, new):
        cloud.assume(f"{ROLE}grace", text)
    _publish(cloud, other.account_key)
    with pytest.raises(TokenRefused, match="retrieve verification key"):
        cloud.assume(f"{ROLE}grace", old)


def _publish(cloud: PodCloud, *keys: str) -> None:
    assert not run(waves(plan_with(*keys), ["shared"])[0][0], cloud.state).failures
