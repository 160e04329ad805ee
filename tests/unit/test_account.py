"""Reading an AWS account: instance types, prices, quotas, errors, tunnel keys and VPN keys."""

import gzip
import json
from collections.abc import Iterator
from dataclasses import fields
from fnmatch import fnmatchcase
from io import BytesIO
from pathlib import Path
from typing import Any

import boto3
import botocore.exceptions as boto
import moto.ec2
import pytest
from botocore.parsers import ResponseParserError
from botocore.response import StreamingBody
from moto import mock_aws

from bedplate.account.backend import check_volume_keys, create_role, missing_roles, service_roles
from bedplate.account.client import (
    AwsClient,
    Denied,
    NoCredentials,
    NotThere,
    TooLarge,
    Unreachable,
    check_account,
    open_session,
    translate_error,
)
from bedplate.account.facts import list_prices, read_instance, read_quotas, region_offers
from bedplate.account.vpn import ConnectionMissing, ParameterKeys, TunnelKeys, key_alias, read_tunnel_keys
from bedplate.catalog import InstanceFacts, load_catalog
from bedplate.catalog.tables import QuotaFacts
from bedplate.errors import BedplateError, InputError, MachineError, PartialError
from bedplate.permissions import alias_name, node_kinds, permissions
from bedplate.plan.cost import QuotaNeed
from bedplate.rehearsal.moto import no_preloaded_images
from tests.testlab.fakes.aws import StubbedSession, asked_of_the_price_list, client_of, product
from tests.testlab.fleets.variants import LAB_PLAN
from tests.testlab.rehearsal.programs import EXAMPLES, plan_of

RECORDED: dict[str, Any] = json.loads(
    gzip.decompress((Path(moto.ec2.__file__).parent / "resources" / "instance_types.json.gz").read_bytes())
)
SMALL = "ap-southeast-5"
# Types whose figures in the catalog's source differ from EC2's; figures that the source lacks are not compared.
DIFFERENT = {
    "network_mbps": {"g7.2xlarge", "g7.4xlarge", "g7.8xlarge", "i7i.12xlarge", "i8g.12xlarge", "i8g.metal-48xl"}
    | {f"{family}.{size}" for family in ("i7ie", "i8ge") for size in ("48xlarge", "metal-48xl")},
    "interfaces_per_card": {f"{family}.{size}" for family in ("i7ie", "i8ge") for size in ("48xlarge", "metal-48xl")},
}


@pytest.mark.parametrize("figure", [field.name for field in fields(InstanceFacts)])
def test_ec2_entries_match_the_shipped_catalogue(figure: str) -> None:
    """A refresh of the catalog from EC2 does not change a figure."""
    shipped = load_catalog().types
    read = {name: read_instance(RECORDED[name]) for name in shipped.keys() & RECORDED.keys()}

    different = {name for name, facts in read.items() if getattr(facts, figure) != getattr(shipped[name], figure)}

    assert {name for name in different if getattr(shipped[name], figure)} == DIFFERENT.get(figure, set())


def test_mac_types_are_skipped() -> None:
    """A type with an unsupported architecture has no facts."""
    assert read_instance(RECORDED["mac1.metal"]) is None


def test_missing_figures_are_not_guessed() -> None:
    """An entry with only the required keys leaves all other figures empty."""
    entry = {
        "InstanceType": "x9.large",
        "ProcessorInfo": {"SupportedArchitectures": ["arm64"]},
        "VCpuInfo": {"DefaultVCpus": 2},
        "MemoryInfo": {"SizeInMiB": 4096},
    }

    assert read_instance(entry) == InstanceFacts("x9.large", "arm64", 2, 4096, hypervisor="")


@pytest.fixture
def simulated() -> Iterator[None]:
    """Run moto without its thousands of images."""
    with no_preloaded_images(), mock_aws():
        yield


def test_zone_offers_match_the_shipped_catalogue(simulated: None) -> None:
    """The offers of a region, read from moto's EC2, are those of the catalog."""
    catalog, client = load_catalog(), AwsClient(open_session())

    offers = region_offers(client, SMALL)

    assert offers == {name: offered[SMALL] for name, offered in catalog.offers.items() if SMALL in offered}


def test_prices_are_read_page_by_page() -> None:
    """All pages are read, from the region that serves the price list."""
    session, query = StubbedSession(), asked_of_the_price_list("us-east-1")
    first = {"PriceList": [product("p5.48xlarge", "55.0400000000")], "NextToken": "more"}
    session.answers("pricing", "us-east-1", "get_products", first, **query)
    second = {"PriceList": [product("g6.xlarge", "0.8048000000")]}
    session.answers("pricing", "us-east-1", "get_products", second, **query, NextToken="more")

    assert list_prices(client_of(session), "us-east-1") == {"p5.48xlarge": 55.04, "g6.xlarge": 0.8048}
    session.assert_all_asked()


def test_only_hourly_on_demand_prices_are_read() -> None:
    """Prices of 0, upfront prices and reserved-only entries are skipped."""
    session = StubbedSession()
    reserved_only = json.dumps({"product": {"attributes": {"instanceType": "m9.large"}}, "terms": {"Reserved": {}}})
    listed = [product("p5.48xlarge", "0.0000000000"), product("g6.xlarge", "9.0", unit="Quantity"), reserved_only]
    query = asked_of_the_price_list("eu-west-1")
    session.answers("pricing", "us-east-1", "get_products", {"PriceList": listed}, **query)

    assert list_prices(client_of(session), "eu-west-1") == {}


def test_the_higher_of_two_prices_is_used() -> None:
    """A type with two prices costs the higher one, so the estimate is never too low."""
    session = StubbedSession()
    listed = [product("g6.xlarge", "0.9"), product("g6.xlarge", "0.8")]
    query = asked_of_the_price_list("us-east-1")
    session.answers("pricing", "us-east-1", "get_products", {"PriceList": listed}, **query)

    assert list_prices(client_of(session), "us-east-1") == {"g6.xlarge": 0.9}


WEST, EAST = "us-west-2", "us-east-1"
P_ON_DEMAND = QuotaFacts("on-demand P vCPUs", "ec2", "L-417A185B", 0)
ADDRESSES = QuotaFacts("elastic addresses", "ec2", "L-0263D0A3", 5)
FILES = QuotaFacts("file systems", "elasticfilesystem", "L-848C634D", 1000)
LIST, DEFAULT = "list_service_quotas", "get_aws_default_service_quota"


def _quota(quota: QuotaFacts, value: float) -> dict[str, object]:
    return {"QuotaCode": quota.code, "Value": value}


def test_quotas_are_listed_once_per_service_and_region() -> None:
    """All pages are read, and only the quotas that the fleet needs are kept."""
    session = StubbedSession()
    unneeded = QuotaFacts("rules", "ec2", "L-1", 1)
    first = {"Quotas": [_quota(P_ON_DEMAND, 384.0), _quota(unneeded, 1.0)], "NextToken": "more"}
    session.answers("service-quotas", WEST, LIST, first, ServiceCode="ec2")
    page = {"Quotas": [_quota(ADDRESSES, 5.0)]}
    session.answers("service-quotas", WEST, LIST, page, ServiceCode="ec2", NextToken="more")
    session.answers("service-quotas", EAST, LIST, {"Quotas": [_quota(FILES, 9.0)]}, ServiceCode="elasticfilesystem")
    needs = (QuotaNeed(WEST, P_ON_DEMAND, 0, 1), QuotaNeed(WEST, ADDRESSES, 2, 2), QuotaNeed(EAST, FILES, 1, 1))

    answers = read_quotas(client_of(session), needs)

    assert answers.successes == {
        WEST: {(WEST, "L-417A185B"): 384.0, (WEST, "L-0263D0A3"): 5.0},
        EAST: {(EAST, "L-848C634D"): 9.0},
    }
    session.assert_all_asked()


def test_an_unlisted_quota_has_the_default_of_aws() -> None:
    """The default is read for each quota that is not listed; a quota without a default is left out."""
    session = StubbedSession()
    session.answers("service-quotas", WEST, LIST, {"Quotas": []}, ServiceCode="ec2")
    query = {"ServiceCode": "ec2", "QuotaCode": "L-0263D0A3"}
    session.answers("service-quotas", WEST, DEFAULT, {"Quota": _quota(ADDRESSES, 5.0)}, **query)
    session.refuses("service-quotas", WEST, DEFAULT, "NoSuchResourceException")

    answers = read_quotas(client_of(session), (QuotaNeed(WEST, P_ON_DEMAND, 0, 1), QuotaNeed(WEST, ADDRESSES, 2, 2)))

    assert answers.successes == {WEST: {(WEST, "L-0263D0A3"): 5.0}}
    session.assert_all_asked()


def test_a_failing_region_does_not_stop_the_others() -> None:
    """The results of other regions are returned, with the error of the failing region."""
    session = StubbedSession()
    session.answers("service-quotas", WEST, LIST, {"Quotas": [_quota(FILES, 9.0)]}, ServiceCode="elasticfilesystem")
    session.refuses("service-quotas", EAST, LIST, "ServiceException", 500)

    answers = read_quotas(client_of(session), (QuotaNeed(EAST, FILES, 1, 1), QuotaNeed(WEST, FILES, 1, 1)))

    assert (list(answers.successes), list(answers.failures)) == ([WEST], [EAST])
    assert isinstance(answers.failures[EAST], PartialError)


SECRET = "wJalrXUtnFEMI"  # noqa: S105  a fake


def _client_error(code: str, status: int = 400) -> boto.ClientError:
    details = {"Code": code, "Message": f"signed with {SECRET}"}
    response = {"Error": details, "ResponseMetadata": {"HTTPStatusCode": status}}
    return boto.ClientError(response, "GetServiceQuota")


def _name(value: object) -> str:
    if isinstance(value, boto.ClientError):
        return str(value.response["Error"]["Code"])
    return type(value).__name__ if isinstance(value, Exception) else ""


@pytest.mark.parametrize(
    ("error", "kind", "message"),
    [
        (boto.NoCredentialsError(), NoCredentials, "no AWS credentials"),
        (boto.PartialCredentialsError(provider="env", cred_var=SECRET), MachineError, "are incomplete"),
        (boto.ProfileNotFound(profile="lab"), MachineError, "no profile named lab"),
        (boto.UnauthorizedSSOTokenError(), MachineError, "have expired"),
        (boto.LoginRefreshRequired(), MachineError, "have expired"),
        (boto.TokenRetrievalError(provider="sso", error_msg=SECRET), MachineError, "have expired"),
        (boto.EndpointConnectionError(endpoint_url=SECRET), Unreachable, "cannot connect"),
        (boto.ReadTimeoutError(endpoint_url=SECRET), Unreachable, "cannot connect"),
        (
            boto.ProxyConnectionError(proxy_url=f"http://me:{SECRET}@proxy"),
            Unreachable,
            "cannot connect",
        ),
        (boto.SSLError(endpoint_url="", error=SECRET), Unreachable, "cannot connect"),
        (ResponseParserError(SECRET), Unreachable, "not from AWS"),
        (boto.InvalidRegionError(region_name=SECRET), MachineError, "InvalidRegionError"),
        (_client_error("ExpiredToken"), MachineError, "have expired"),
        (_client_error("ExpiredTokenException"), MachineError, "have expired"),
        (_client_error("SignatureDoesNotMatch"), MachineError, "rejected the AWS credentials"),
        (_client_error("UnrecognizedClientException"), MachineError, "rejected the AWS credentials"),
        (_client_error("OptInRequired"), MachineError, "not enabled"),
        (_client_error("AccessDeniedException"), Denied, "permission denied: servicequotas:GetServiceQuota"),
        (_client_error("UnauthorizedOperation"), Denied, "permission denied: servicequotas:GetServiceQuota"),
        (_client_error("ThrottlingException"), PartialError, "throttles requests"),
        (_client_error("NoSuchResourceException"), NotThere, "does not exist"),
        (_client_error("ServiceException", 500), PartialError, "internal error of AWS"),
    ],
    ids=_name,
)
def test_each_exception_is_translated(
    error: boto.BotoCoreError | boto.ClientError, kind: type[BedplateError], message: str
) -> None:
    """Each exception of botocore becomes the matching error, without AWS's text where it may contain a secret."""
    translated = translate_error(error, "service-quotas")

    assert type(translated) is kind
    assert message in translated.what
    assert SECRET not in translated.what + translated.fix


def test_an_unknown_api_error_shows_its_code() -> None:
    """The error code and AWS's text are in the message."""
    translated = translate_error(_client_error("InvalidPaginationTokenException"), "ec2")

    assert (type(translated), "InvalidPaginationTokenException" in translated.what) == (PartialError, True)


def test_credentials_of_the_fleets_account_are_accepted() -> None:
    """No error is raised if the accounts match."""
    session = StubbedSession()
    session.belongs_to("111122223333", "us-west-2")

    check_account(AwsClient(session), "111122223333", "us-west-2")

    session.assert_all_asked()


def test_credentials_of_another_account_are_refused() -> None:
    """The message names both accounts."""
    session = StubbedSession()
    session.belongs_to("444455556666", "us-west-2")

    with pytest.raises(InputError, match=r"444455556666.*111122223333"):
        check_account(AwsClient(session), "111122223333", "us-west-2")


def test_an_unknown_profile_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """An unknown AWS_PROFILE is an error before the first call."""
    monkeypatch.setenv("AWS_PROFILE", "unknown")

    with pytest.raises(MachineError, match="AWS_PROFILE: no profile named unknown"):
        open_session()


def test_missing_credentials_are_reported() -> None:
    """A real session without credentials raises NoCredentials and sends no request."""
    with pytest.raises(NoCredentials):
        AwsClient(open_session()).call("sts", "us-west-2", "get_caller_identity")


def test_a_call_with_wrong_parameters_is_not_translated() -> None:
    """A wrong call is a bug in bedplate, not an operator's error."""
    client = AwsClient(boto3.session.Session("key", "secret"))

    with pytest.raises(boto.ParamValidationError):
        client.call("ssm", "us-west-2", "get_parameter", Nome="x")


REGIONS = [region.name for region in LAB_PLAN.regions]
HOME = LAB_PLAN.home.name
KEYS = {"198.51.100.7": "first.key", "198.51.100.5": "second.key"}


def _query(region: str) -> dict[str, str]:
    return {"SecretId": f"lab/tunnels/cellar/{region}"}


def _read(text: str) -> TunnelKeys:
    session = StubbedSession()
    for region in REGIONS:
        session.answers("secretsmanager", HOME, "get_secret_value", {"SecretString": text}, **_query(region))
    return read_tunnel_keys(client_of(session), LAB_PLAN, "cellar")


def test_tunnels_are_in_the_order_of_the_secret() -> None:
    """Tunnels keep the order of the secret, not of their addresses; `repr` hides the keys."""
    keys = _read(json.dumps(KEYS))

    assert list(keys.ends) == REGIONS
    assert not keys.missing
    for pair in keys.ends.values():
        assert [(str(end.address), end.key) for end in pair] == list(KEYS.items())
    assert "key'" not in repr(keys)
    assert "first.key" not in repr(keys)


def test_a_missing_connection_is_named() -> None:
    """A connection without a secret is reported with its fix; the keys of the others are returned."""
    session = StubbedSession()
    session.refuses("secretsmanager", HOME, "get_secret_value", "ResourceNotFoundException")
    for region in REGIONS[1:]:
        answer = {"SecretString": json.dumps(KEYS)}
        session.answers("secretsmanager", HOME, "get_secret_value", answer, **_query(region))

    keys = read_tunnel_keys(client_of(session), LAB_PLAN, "cellar")

    assert list(keys.ends) == REGIONS[1:]
    (missing,) = keys.missing.values()
    assert isinstance(missing, ConnectionMissing)
    assert f"no secret lab/tunnels/cellar/{REGIONS[0]} in {HOME}" in missing.what
    assert "bedplate up --stack links" in missing.fix


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("not JSON: first.key", id="no-json"),
        pytest.param('["first.key"]', id="a-list"),
        pytest.param('{"198.51.100.7": "first.key"}', id="one-tunnel"),
        pytest.param('{"gate": "first.key", "198.51.100.5": "second.key"}', id="no-address"),
        pytest.param('{"198.51.100.7": "first.key", "198.51.100.5": ""}', id="no-key"),
        pytest.param('{"198.51.100.7": "first.key", "198.51.100.5": 12345678}', id="a-number"),
    ],
)
def test_a_malformed_secret_is_refused(text: str) -> None:
    """A secret must contain two addresses with keys; the message contains none of its text."""
    with pytest.raises(PartialError, match="does not contain two tunnels") as caught:
        _read(text)

    assert "first.key" not in str(caught.value)


def test_a_short_key_is_refused() -> None:
    """A key has at least eight characters, as in AWS; the message does not contain the key."""
    assert _read(json.dumps(KEYS | {"198.51.100.5": "eight.ok"})).ends

    with pytest.raises(PartialError, match=r"the key for 198.51.100.5 in .* is shorter than 8 characters") as caught:
        _read(json.dumps(KEYS | {"198.51.100.5": "seven.7"}))

    assert "seven" not in f"{caught.value} {caught.value.fix}"


FLEET, NAME = "lab", "ada.laptop"
TEXT, NEWER = "a key\n" + "x" * 2_500, "the next key\n"


@pytest.fixture
def client() -> Iterator[AwsClient]:
    """Provide a client of an account simulated by moto."""
    with mock_aws():
        yield AwsClient(open_session())


def test_a_key_is_read_as_it_was_written(client: AwsClient) -> None:
    """A new store returns the last text of a name, and None for an unknown name."""
    ParameterKeys(client, HOME, FLEET).write({NAME: TEXT, "authority": TEXT})
    ParameterKeys(client, HOME, FLEET).write({NAME: NEWER})

    store = ParameterKeys(client, HOME, FLEET)
    assert (store.read(NAME), store.read("authority"), store.read("grace.laptop")) == (NEWER, TEXT, None)


def test_parameters_are_encrypted_with_the_fleets_key(client: AwsClient) -> None:
    """The KMS key is the fleet's; with AWS's default key, every reader of parameters could decrypt them."""
    ParameterKeys(client, HOME, FLEET).write({NAME: TEXT})

    parameters = client.call("ssm", HOME, "describe_parameters")["Parameters"]

    assert [(parameter["Name"], parameter["Type"], parameter["KeyId"]) for parameter in parameters] == [
        ("/vpn_keys/lab/ada.laptop", "SecureString", key_alias(FLEET))
    ]


def test_the_key_alias_is_that_of_the_stacks() -> None:
    """The alias is defined twice, because `bedplate.account` does not import the stacks."""
    assert key_alias(FLEET) == alias_name(plan_of(EXAMPLES / "lab.yaml"), "parameters")


def test_no_node_may_read_a_key() -> None:
    """No node role can read a VPN key: a compromised node could issue certificates."""
    plan = plan_of(EXAMPLES / "lab.yaml")
    path = f"arn:aws:ssm:{HOME}:{plan.account}:parameter/vpn_keys/lab/authority"
    statements = [statement for kind in node_kinds(plan) for statement in permissions(plan, kind)]

    actions = {action for statement in statements for action in statement.actions}
    readers = [
        statement
        for statement in statements
        if any(action.startswith("ssm:GetParameter") for action in statement.actions)
    ]

    assert not [action for action in actions if action.startswith("secretsmanager:")]
    assert readers
    assert not [reader for reader in readers if any(fnmatchcase(path, resource) for resource in reader.resources)]


def test_an_unreadable_store_is_an_error() -> None:
    """Denied access is not treated as a missing key: a second key would replace the first."""
    session = StubbedSession()
    session.refuses("ssm", HOME, "get_parameter", "AccessDeniedException")

    with pytest.raises(MachineError, match="ssm:GetParameter"):
        ParameterKeys(client_of(session), HOME, FLEET).read(NAME)


def test_missing_service_linked_roles_are_created_once() -> None:
    """Another operator may create one in between. moto stands in for IAM."""
    scaling, spot = "AWSServiceRoleForAutoScaling", "AWSServiceRoleForEC2Spot"
    with mock_aws():
        client = AwsClient(boto3.session.Session("key", "secret"))
        assert missing_roles(client, WEST, (scaling, spot)) == (scaling, spot)
        for _ in range(2):
            create_role(client, WEST, scaling, "autoscaling.amazonaws.com")
        assert missing_roles(client, WEST, (scaling, spot)) == (spot,)


def test_the_roles_of_a_fleet_follow_its_resources() -> None:
    """Spot pools, file systems and transit gateways need one each, Auto Scaling always."""
    assert len(service_roles(LAB_PLAN)) == 4
    solo = service_roles(plan_of(EXAMPLES / "minimal.yaml"))
    assert [*solo] == ["AWSServiceRoleForAutoScaling", "AWSServiceRoleForAmazonElasticFileSystem"]


CUSTOMER_KEY = f"arn:aws:kms:{EAST}:111122223333:key/0a1b2c3d"
LAUNCHERS = (
    "autoscaling.amazonaws.com/AWSServiceRoleForAutoScaling",
    "spot.amazonaws.com/AWSServiceRoleForEC2Spot",
)


def volume_keys(session: StubbedSession, customer: str = "", manager: str = "CUSTOMER") -> None:
    """Answer with the default keys of EBS: AWS's, but a customer's in one region."""
    for region in (WEST, EAST, "eu-north-1"):
        key = CUSTOMER_KEY if region == customer else "alias/aws/ebs"
        session.answers("ec2", region, "get_ebs_default_kms_key_id", {"KmsKeyId": key})
    if customer:
        metadata = {"KeyMetadata": {"KeyId": "0a1b2c3d", "KeyManager": manager}}
        session.answers("kms", customer, "describe_key", metadata, KeyId=CUSTOMER_KEY)


def key_policy(*roles: str, effect: str = "Allow") -> dict[str, str]:
    """Return KMS's answer with a policy that lets roles use the key by grants."""
    arns = [f"arn:aws:iam::111122223333:role/aws-service-role/{role}" for role in roles]
    statement = {"Effect": effect, "Principal": {"AWS": arns}, "Action": ["kms:CreateGrant"], "Resource": "*"}
    return {"Policy": json.dumps({"Version": "2012-10-17", "Statement": statement})}


@pytest.mark.parametrize(("customer", "manager"), [("", ""), (WEST, "AWS"), (EAST, "AWS")])
def test_volumes_may_have_the_key_of_aws(customer: str, manager: str) -> None:
    """Each role of the account may use AWS's key through EC2, whether it is named by alias or by id."""
    session = StubbedSession()
    volume_keys(session, customer, manager)

    check_volume_keys(client_of(session), LAB_PLAN)

    session.assert_all_asked()


def test_volumes_may_have_a_customer_key_for_the_roles_that_launch() -> None:
    """The policy names the roles of Auto Scaling and of spot instances, for a region without a control plane."""
    session = StubbedSession()
    volume_keys(session, EAST)
    session.answers("kms", EAST, "get_key_policy", key_policy(*LAUNCHERS), KeyId=CUSTOMER_KEY, PolicyName="default")

    check_volume_keys(client_of(session), LAB_PLAN)

    session.assert_all_asked()


@pytest.mark.parametrize(
    ("policy", "reason"),
    [
        (key_policy(LAUNCHERS[0]), "whose policy does not let AWSServiceRoleForEC2Spot create grants"),
        (key_policy(*LAUNCHERS, effect="Deny"), "AWSServiceRoleForAutoScaling and AWSServiceRoleForEC2Spot"),
        (None, "whose policy cannot be read"),
    ],
)
def test_a_customer_key_without_the_roles_that_launch_is_refused(policy: dict[str, str] | None, reason: str) -> None:
    """Each machine would be ended at its start; a policy that cannot be read allows nothing."""
    session = StubbedSession()
    volume_keys(session, EAST)
    if policy:
        session.answers("kms", EAST, "get_key_policy", policy, KeyId=CUSTOMER_KEY, PolicyName="default")
    else:
        session.refuses("kms", EAST, "get_key_policy", "AccessDeniedException")

    with pytest.raises(MachineError, match=reason) as refused:
        check_volume_keys(client_of(session), LAB_PLAN)

    assert "reset-ebs-default-kms-key-id --region us-east-1" in refused.value.fix


def test_a_customer_key_is_refused_where_members_attach_volumes() -> None:
    """The role of a member may use no key for volumes, so etcd would never start."""
    session = StubbedSession()
    volume_keys(session, WEST)

    with pytest.raises(MachineError, match="permanent machines may not attach"):
        check_volume_keys(client_of(session), LAB_PLAN)


def test_an_object_of_a_bucket_is_read_to_its_limit(client: AwsClient, tmp_path: Path) -> None:
    """One byte more is an error, in memory and on disk; the file has no byte above the limit."""
    place = {"Bucket": "states", "Key": "etcd/x"}
    client.call("s3", HOME, "create_bucket", Bucket="states", CreateBucketConfiguration={"LocationConstraint": HOME})
    client.call("s3", HOME, "put_object", **place, Body=b"12345678")
    file = tmp_path / "x"

    assert client.read_object(HOME, "states", "etcd/x", 8) == b"12345678"
    with file.open("wb") as stream:
        client.copy_object(HOME, place, stream, 8)
    assert file.read_bytes() == b"12345678"
    with pytest.raises(TooLarge, match="s3://states/etcd/x is larger than 7 bytes"):
        client.read_object(HOME, "states", "etcd/x", 7)
    with pytest.raises(TooLarge), file.open("wb") as stream:
        client.copy_object(HOME, place, stream, 7)
    assert file.stat().st_size <= 7


def test_a_lost_connection_to_a_bucket_is_one_error(client: AwsClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """The operator sees a message, and no traceback, when an object ends before its length."""
    reply = {"Body": StreamingBody(BytesIO(b"1234"), 8)}
    monkeypatch.setattr(AwsClient, "call", lambda *_, **__: reply)

    with pytest.raises(BedplateError):
        client.copy_object(HOME, {"Bucket": "states", "Key": "etcd/x"}, BytesIO())
