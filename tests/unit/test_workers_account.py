"""AWS's side of joining, simulated by moto: the instances of a fleet, the keys that they publish, and the token."""

from collections.abc import Iterator
from dataclasses import replace
from ipaddress import IPv4Address

import boto3
import pytest
from moto import mock_aws

from bedplate.account.client import AwsClient
from bedplate.account.workers import PublishedKeys, put_token, read_workers
from bedplate.machine.approver import Cloud
from bedplate.plan.cluster import JoiningPlan
from bedplate.rehearsal.moto import no_preloaded_images

REGION, BUCKET, ROLE = "us-west-2", "lab-nodes", "AROAEXAMPLE"
PLAN = JoiningPlan("lab", REGION, {REGION: BUCKET}, {})
KEY = "a" * 64


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Iterator[AwsClient]:
    """Yield the client of a simulated account with the fleet's bucket."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    with no_preloaded_images(), mock_aws():
        client = AwsClient(boto3.session.Session())
        where = {"LocationConstraint": REGION}
        client.call("s3", REGION, "create_bucket", Bucket=BUCKET, CreateBucketConfiguration=where)
        yield client


def run_instance(client: AwsClient, fleet: str = "lab", use: str = "kubernetes") -> str:
    """Start an instance with the tags of a pool; return its id."""
    tags = {"bedplate:fleet": fleet, "bedplate:use": use, "bedplate:group": "train"}
    specification = {
        "ResourceType": "instance",
        "Tags": [{"Key": key, "Value": value} for key, value in tags.items()],
    }
    values = {"ImageId": "ami-12345678", "MinCount": 1, "MaxCount": 1, "TagSpecifications": [specification]}
    instance: str = client.call("ec2", REGION, "run_instances", **values)["Instances"][0]["InstanceId"]
    return instance


def publish(client: AwsClient, instance: str, text: str, role: str = ROLE) -> None:
    """Write a status object as an instance may."""
    name = f"status/{role}:{instance}/join.json"
    client.call("s3", REGION, "put_object", Bucket=BUCKET, Key=name, Body=text.encode())


def test_workers_are_the_running_instances_of_the_fleets_pools(client: AwsClient) -> None:
    """Workbenches, other fleets and ended instances are none; the name is that of the ADR, the addresses are EC2's."""
    worker, ended = run_instance(client), run_instance(client)
    run_instance(client, use="ssh")
    run_instance(client, fleet="other")
    client.call("ec2", REGION, "terminate_instances", InstanceIds=[ended])

    (running,) = read_workers(client, PLAN).successes[REGION]

    assert (running.instance, running.name) == (worker, f"train-{worker[-8:]}.us-west-2")
    assert running.addresses


def test_a_key_is_read_below_the_id_of_its_instance_only(client: AwsClient) -> None:
    """Keys of others, invalid texts and other objects are no keys; a new role of the same name is found."""
    keys = PublishedKeys(client, PLAN)
    publish(client, "i-other", f'{{"key": "{"b" * 64}"}}')
    assert keys.read(REGION, {"i-mine"}) == {}

    publish(client, "i-mine", f'{{"key": "{KEY}"}}')
    publish(client, "i-broken", '{"key": ["x"]}')
    assert keys.read(REGION, {"i-mine", "i-broken"}) == {"i-mine": KEY}

    client.call("s3", REGION, "delete_object", Bucket=BUCKET, Key=f"status/{ROLE}:i-mine/join.json")
    publish(client, "i-mine", f'{{"key": "{KEY}"}}', role="AROANEW")
    assert keys.read(REGION, {"i-mine"}) == {}
    assert keys.read(REGION, {"i-mine"}) == {"i-mine": KEY}


def test_the_token_is_stored_encrypted_and_replaced(client: AwsClient) -> None:
    """The parameter is outside the folder that every node may read."""
    for token in ("first.token", "second.token"):
        put_token(client, PLAN, token)

    stored = client.call("ssm", REGION, "get_parameter", Name="/lab.workers/join", WithDecryption=True)["Parameter"]

    assert (stored["Type"], stored["Value"]) == ("SecureString", "second.token")


def test_the_approver_knows_keys_of_waiting_machines_and_addresses_of_permanent_ones(client: AwsClient) -> None:
    """AWS is asked again after 30 s, and after 5 s while a request waits."""
    cloud = Cloud(client, replace(PLAN, fixed={"titan-01.cellar": IPv4Address("192.168.40.21")}))
    empty = cloud.inventory(0.0, frozenset())
    worker = run_instance(client)
    name = f"train-{worker[-8:]}.us-west-2"
    publish(client, worker, f'{{"key": "{KEY}"}}')

    assert set(empty.machines) == {"titan-01.cellar"}
    assert name not in cloud.inventory(4.0, {name}).machines
    assert cloud.inventory(6.0, {name}).machines[name].key == KEY
    assert cloud.inventory(40.0, frozenset()).machines[name].key is None
