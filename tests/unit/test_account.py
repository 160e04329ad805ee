"""EC2's own words on instance types, read as the catalogue tells them."""

import gzip
import json
from collections.abc import Iterator
from dataclasses import fields
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import boto3
import botocore.exceptions as boto
import moto.ec2
import pytest
from botocore.parsers import ResponseParserError
from moto import mock_aws

from bedplate.account.client import Door, NoCredentials, NotThere, check_account, opened_session, trouble
from bedplate.account.facts import enabled_regions, granted, list_prices, read_instance, region_offers
from bedplate.account.vpn import NotMade, ParameterKeys, TunnelKeys, key_alias, tunnel_keys
from bedplate.catalog import InstanceFacts, load_catalog
from bedplate.catalog.tables import QuotaFacts
from bedplate.errors import BedplateError, InputError, MachineError, PartError
from bedplate.plan.quotas import Need
from bedplate.rehearsal.moto import empty_stock
from stacks.identity.policy import alias_name
from stacks.identity.roles import kinds, permissions
from tests.testlab.fakes.aws import StubbedSession, asked_of_the_price_list, door_of, product
from tests.testlab.fleets.variants import SITE_SIDE_LAB
from tests.testlab.rehearsal.programs import EXAMPLES, plan_of

RECORDED: dict[str, Any] = json.loads(
    gzip.decompress((Path(moto.ec2.__file__).parent / "resources" / "instance_types.json.gz").read_bytes())
)
SMALL = "ap-southeast-5"
# Where our source is behind EC2's own words, or rounds them; a figure that it lacks is not held against it.
BEHIND = {
    "network_mbps": {"g7.2xlarge", "g7.4xlarge", "g7.8xlarge", "i7i.12xlarge", "i8g.12xlarge", "i8g.metal-48xl"}
    | {f"{family}.{size}" for family in ("i7ie", "i8ge") for size in ("48xlarge", "metal-48xl")},
    "interfaces_per_card": {f"{family}.{size}" for family in ("i7ie", "i8ge") for size in ("48xlarge", "metal-48xl")},
}


@pytest.mark.parametrize("figure", [field.name for field in fields(InstanceFacts)])
def test_ec2_s_words_read_as_the_shipped_catalogue(figure: str) -> None:
    """A refresh must not turn a figure into another that means something else."""
    shipped = load_catalog().types
    read = {name: read_instance(RECORDED[name]) for name in shipped.keys() & RECORDED.keys()}

    differing = {name for name, facts in read.items() if getattr(facts, figure) != getattr(shipped[name], figure)}

    assert {name for name in differing if getattr(shipped[name], figure)} == BEHIND.get(figure, set())


def test_a_mac_is_no_type_of_ours() -> None:
    """Its architecture runs nothing that a fleet runs."""
    assert read_instance(RECORDED["mac1.metal"]) is None


def test_what_ec2_leaves_out_is_not_guessed() -> None:
    """An entry with no more than EC2 always tells."""
    entry = {
        "InstanceType": "x9.large",
        "ProcessorInfo": {"SupportedArchitectures": ["arm64"]},
        "VCpuInfo": {"DefaultVCpus": 2},
        "MemoryInfo": {"SizeInMiB": 4096},
    }

    assert read_instance(entry) == InstanceFacts("x9.large", "arm64", 2, 4096, hypervisor="")


@pytest.fixture
def simulated() -> Iterator[None]:
    """Run a simulated AWS without the thousands of images that moto would bring."""
    with empty_stock(), mock_aws():
        yield


def test_a_region_s_offers_read_as_the_shipped_catalogue(simulated: None) -> None:
    """Asked of the simulated EC2, through the real door."""
    catalog, door = load_catalog(), Door(opened_session())

    offers = region_offers(door, SMALL)

    assert offers == {name: offered[SMALL] for name, offered in catalog.offers.items() if SMALL in offered}
    assert catalog.regions.keys() <= set(enabled_regions(door, "us-east-1"))


def test_prices_are_read_page_by_page() -> None:
    """USD an hour by type, from the one region that serves the list."""
    session, asked = StubbedSession(), asked_of_the_price_list("us-east-1")
    first = {"PriceList": [product("p5.48xlarge", "55.0400000000")], "NextToken": "more"}
    session.answers("pricing", "us-east-1", "get_products", first, **asked)
    second = {"PriceList": [product("g6.xlarge", "0.8048000000")]}
    session.answers("pricing", "us-east-1", "get_products", second, **asked, NextToken="more")

    assert list_prices(door_of(session), "us-east-1") == {"p5.48xlarge": 55.04, "g6.xlarge": 0.8048}
    session.assert_all_asked()


def test_what_is_no_price_of_an_hour_is_left_out() -> None:
    """Placeholders of nothing, upfront sums, and entries that are not sold on demand."""
    session = StubbedSession()
    reserved_only = json.dumps({"product": {"attributes": {"instanceType": "m9.large"}}, "terms": {"Reserved": {}}})
    listed = [product("p5.48xlarge", "0.0000000000"), product("g6.xlarge", "9.0", unit="Quantity"), reserved_only]
    asked = asked_of_the_price_list("eu-west-1")
    session.answers("pricing", "us-east-1", "get_products", {"PriceList": listed}, **asked)

    assert list_prices(door_of(session), "eu-west-1") == {}


def test_of_two_prices_the_higher_is_told() -> None:
    """A bill that is lower than what was told surprises nobody."""
    session = StubbedSession()
    listed = [product("g6.xlarge", "0.9"), product("g6.xlarge", "0.8")]
    asked = asked_of_the_price_list("us-east-1")
    session.answers("pricing", "us-east-1", "get_products", {"PriceList": listed}, **asked)

    assert list_prices(door_of(session), "us-east-1") == {"g6.xlarge": 0.9}


WEST, EAST = "us-west-2", "us-east-1"
P_ON_DEMAND = QuotaFacts("on-demand P vCPUs", "ec2", "L-417A185B", 0)
ADDRESSES = QuotaFacts("elastic addresses", "ec2", "L-0263D0A3", 5)
FILES = QuotaFacts("file systems", "elasticfilesystem", "L-848C634D", 1000)
LIST, DEFAULT = "list_service_quotas", "get_aws_default_service_quota"


def _quota(quota: QuotaFacts, value: float) -> dict[str, object]:
    return {"QuotaCode": quota.code, "Value": value}


def test_each_service_is_listed_once_in_each_region() -> None:
    """To the last page, and only what the fleet needs is kept."""
    session = StubbedSession()
    stranger = QuotaFacts("rules", "ec2", "L-1", 1)
    first = {"Quotas": [_quota(P_ON_DEMAND, 384.0), _quota(stranger, 1.0)], "NextToken": "more"}
    session.answers("service-quotas", WEST, LIST, first, ServiceCode="ec2")
    page = {"Quotas": [_quota(ADDRESSES, 5.0)]}
    session.answers("service-quotas", WEST, LIST, page, ServiceCode="ec2", NextToken="more")
    session.answers("service-quotas", EAST, LIST, {"Quotas": [_quota(FILES, 9.0)]}, ServiceCode="elasticfilesystem")
    needs = (Need(WEST, P_ON_DEMAND, 0, 1), Need(WEST, ADDRESSES, 2, 2), Need(EAST, FILES, 1, 1))

    answers = granted(door_of(session), needs)

    assert answers.given == {
        WEST: {(WEST, "L-417A185B"): 384.0, (WEST, "L-0263D0A3"): 5.0},
        EAST: {(EAST, "L-848C634D"): 9.0},
    }
    session.assert_all_asked()


def test_what_is_not_listed_is_at_aws_s_own_value() -> None:
    """Service Quotas lists what was granted; the rest it tells one by one, and of some it knows nothing."""
    session = StubbedSession()
    session.answers("service-quotas", WEST, LIST, {"Quotas": []}, ServiceCode="ec2")
    asked = {"ServiceCode": "ec2", "QuotaCode": "L-0263D0A3"}
    session.answers("service-quotas", WEST, DEFAULT, {"Quota": _quota(ADDRESSES, 5.0)}, **asked)
    session.refuses("service-quotas", WEST, DEFAULT, "NoSuchResourceException")

    answers = granted(door_of(session), (Need(WEST, P_ON_DEMAND, 0, 1), Need(WEST, ADDRESSES, 2, 2)))

    assert answers.given == {WEST: {(WEST, "L-0263D0A3"): 5.0}}
    session.assert_all_asked()


def test_a_region_that_fails_leaves_the_others_answers() -> None:
    """It is told by its name."""
    session = StubbedSession()
    session.answers("service-quotas", WEST, LIST, {"Quotas": [_quota(FILES, 9.0)]}, ServiceCode="elasticfilesystem")
    session.refuses("service-quotas", EAST, LIST, "ServiceException", 500)

    answers = granted(door_of(session), (Need(EAST, FILES, 1, 1), Need(WEST, FILES, 1, 1)))

    assert (list(answers.given), list(answers.failures)) == ([WEST], [EAST])
    assert isinstance(answers.failures[EAST], PartError)


SECRET = "wJalrXUtnFEMI"  # noqa: S105  it is nobody's


def _client_error(code: str, status: int = 400) -> boto.ClientError:
    told = {"Error": {"Code": code, "Message": f"signed with {SECRET}"}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return boto.ClientError(told, "GetServiceQuota")


def _name(value: object) -> str:
    if isinstance(value, boto.ClientError):
        return str(value.response["Error"]["Code"])
    return type(value).__name__ if isinstance(value, Exception) else ""


@pytest.mark.parametrize(
    ("error", "told", "says"),
    [
        (boto.NoCredentialsError(), NoCredentials, "no AWS credentials"),
        (boto.PartialCredentialsError(provider="env", cred_var=SECRET), MachineError, "not complete"),
        (boto.ProfileNotFound(profile="lab"), MachineError, "a profile that there is not"),
        (boto.UnauthorizedSSOTokenError(), MachineError, "have expired"),
        (boto.LoginRefreshRequired(), MachineError, "have expired"),
        (boto.TokenRetrievalError(provider="sso", error_msg=SECRET), MachineError, "have expired"),
        (boto.EndpointConnectionError(endpoint_url=SECRET), MachineError, "cannot be reached"),
        (boto.ReadTimeoutError(endpoint_url=SECRET), MachineError, "cannot be reached"),
        (boto.ProxyConnectionError(proxy_url=f"http://me:{SECRET}@proxy"), MachineError, "cannot be reached"),
        (boto.SSLError(endpoint_url="", error=SECRET), MachineError, "cannot be reached"),
        (ResponseParserError(SECRET), MachineError, "is not AWS"),
        (boto.InvalidRegionError(region_name=SECRET), MachineError, "InvalidRegionError"),
        (_client_error("ExpiredToken"), MachineError, "have expired"),
        (_client_error("ExpiredTokenException"), MachineError, "have expired"),
        (_client_error("SignatureDoesNotMatch"), MachineError, "does not take these credentials"),
        (_client_error("UnrecognizedClientException"), MachineError, "does not take these credentials"),
        (_client_error("OptInRequired"), MachineError, "has not enabled"),
        (_client_error("AccessDeniedException"), MachineError, "may not call servicequotas:GetServiceQuota"),
        (_client_error("UnauthorizedOperation"), MachineError, "may not call servicequotas:GetServiceQuota"),
        (_client_error("ThrottlingException"), PartError, "no more requests"),
        (_client_error("NoSuchResourceException"), NotThere, "does not know"),
        (_client_error("ServiceException", 500), PartError, "fails inside AWS"),
    ],
    ids=_name,
)
def test_each_failure_has_its_words(
    error: boto.BotoCoreError | boto.ClientError, told: type[BedplateError], says: str
) -> None:
    """What to do about a failure follows from what it is; no text of AWS's or botocore's that may hold a secret."""
    found = trouble(error, "service-quotas")

    assert type(found) is told
    assert says in found.what
    assert SECRET not in found.what + found.fix


def test_a_refusal_that_nobody_foresaw_is_told_in_aws_s_words() -> None:
    """Its code is what an operator can look up."""
    found = trouble(_client_error("InvalidPaginationTokenException"), "ec2")

    assert (type(found), "InvalidPaginationTokenException" in found.what) == (PartError, True)


def test_credentials_of_the_fleet_s_account_are_taken() -> None:
    """Nothing is said of it."""
    session = StubbedSession()
    session.belongs_to("111122223333", "us-west-2")

    check_account(Door(session), "111122223333", "us-west-2")

    session.assert_all_asked()


def test_credentials_of_another_account_are_refused_with_both_names() -> None:
    """Whoever has ten profiles must see which one it was."""
    session = StubbedSession()
    session.belongs_to("444455556666", "us-west-2")

    with pytest.raises(InputError, match=r"444455556666.*111122223333"):
        check_account(Door(session), "111122223333", "us-west-2")


def test_a_profile_that_there_is_not_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """boto3 says so before anything is asked."""
    monkeypatch.setenv("AWS_PROFILE", "somebody")

    with pytest.raises(MachineError, match="AWS_PROFILE"):
        opened_session()


def test_a_machine_without_credentials_is_told_as_one() -> None:
    """The real session, which finds none here: nothing leaves the machine."""
    with pytest.raises(NoCredentials):
        Door(opened_session()).call("sts", "us-west-2", "get_caller_identity")


def test_a_call_that_is_made_wrongly_is_our_defect() -> None:
    """It is not put down to the operator's machine."""
    door = Door(boto3.session.Session("key", "secret"))

    with pytest.raises(boto.ParamValidationError):
        door.call("ssm", "us-west-2", "get_parameter", Nome="x")


REGIONS = [region.name for region in SITE_SIDE_LAB.regions]
HOME = SITE_SIDE_LAB.home.name
KEYS = {"198.51.100.7": "first.key", "198.51.100.5": "second.key"}


def _asked(region: str) -> dict[str, str]:
    return {"SecretId": f"lab/tunnels/cellar/{region}"}


def _told(text: str) -> TunnelKeys:
    session = StubbedSession()
    for region in REGIONS:
        session.answers("secretsmanager", HOME, "get_secret_value", {"SecretString": text}, **_asked(region))
    return tunnel_keys(door_of(session), SITE_SIDE_LAB, "cellar")


def test_both_tunnels_of_each_connection_are_told_in_their_order() -> None:
    """The order of the secret is the order of the tunnels, whichever address is the smaller; keys are not shown."""
    told = _told(json.dumps(KEYS))

    assert list(told.ends) == REGIONS
    assert not told.missing
    for pair in told.ends.values():
        assert [(str(one.address), one.key) for one in pair] == list(KEYS.items())
    assert "key'" not in repr(told)
    assert "first.key" not in repr(told)


def test_a_connection_that_was_not_made_yet_is_named() -> None:
    """Without its secret the operator is told which one is missing, and what makes it; the others are told."""
    session = StubbedSession()
    session.refuses("secretsmanager", HOME, "get_secret_value", "ResourceNotFoundException")
    for region in REGIONS[1:]:
        answer = {"SecretString": json.dumps(KEYS)}
        session.answers("secretsmanager", HOME, "get_secret_value", answer, **_asked(region))

    told = tunnel_keys(door_of(session), SITE_SIDE_LAB, "cellar")

    assert list(told.ends) == REGIONS[1:]
    (missing,) = told.missing.values()
    assert isinstance(missing, NotMade)
    assert f"no secret lab/tunnels/cellar/{REGIONS[0]} in {HOME}" in missing.what
    assert "pulumi up -s lab.links" in missing.fix


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
def test_a_secret_of_another_form_is_refused_without_a_word_of_it(text: str) -> None:
    """What is not two addresses with their keys is no connection's secret, and nothing of it is told."""
    with pytest.raises(PartError, match="holds no two tunnels") as caught:
        _told(text)

    assert "first.key" not in str(caught.value)


def test_a_key_that_is_soon_guessed_is_refused_without_a_word_of_it() -> None:
    """AWS takes eight characters at the least: where the secret holds fewer, somebody wrote it by hand."""
    assert _told(json.dumps(KEYS | {"198.51.100.5": "eight.ok"})).ends

    with pytest.raises(PartError, match=r"the key to 198.51.100.5 in .* has fewer than 8 characters") as caught:
        _told(json.dumps(KEYS | {"198.51.100.5": "seven.7"}))

    assert "seven" not in f"{caught.value} {caught.value.fix}"


ACCOUNT_KEYS_HOME, FLEET, NAME = "us-west-2", "lab", "ada.laptop"
TEXT, NEWER = "a key\n" + "x" * 2_500, "the next key\n"


@pytest.fixture
def door() -> Iterator[Door]:
    """Give the door of a simulated account."""
    with mock_aws():
        yield Door(opened_session())


def test_a_key_is_read_as_it_was_written(door: Door) -> None:
    """A newly opened store returns the newest text of a name, and None for a name that was never written."""
    ParameterKeys(door, ACCOUNT_KEYS_HOME, FLEET).write({NAME: TEXT, "authority": TEXT})
    ParameterKeys(door, ACCOUNT_KEYS_HOME, FLEET).write({NAME: NEWER})

    store = ParameterKeys(door, ACCOUNT_KEYS_HOME, FLEET)
    assert (store.read(NAME), store.read("authority"), store.read("grace.laptop")) == (NEWER, TEXT, None)


def test_parameters_are_encrypted_by_the_fleets_own_key(door: Door) -> None:
    """AWS's own key is open to everybody in the account who may read parameters."""
    ParameterKeys(door, ACCOUNT_KEYS_HOME, FLEET).write({NAME: TEXT})

    listed = door.call("ssm", ACCOUNT_KEYS_HOME, "describe_parameters")["Parameters"]

    assert [(one["Name"], one["Type"], one["KeyId"]) for one in listed] == [
        ("/vpn_keys/lab/ada.laptop", "SecureString", key_alias(FLEET))
    ]


def test_the_key_is_the_one_that_the_stacks_make() -> None:
    """Its alias is written in two places, for the account knows nothing of stacks."""
    assert key_alias(FLEET) == alias_name(plan_of(EXAMPLES / "lab.yaml"), "parameters")


def test_no_node_may_read_a_key() -> None:
    """A machine that somebody took over would else sign certificates of its own."""
    plan = plan_of(EXAMPLES / "lab.yaml")
    path = f"arn:aws:ssm:{ACCOUNT_KEYS_HOME}:{plan.account}:parameter/vpn_keys/lab/authority"
    statements = [statement for kind in kinds(plan) for statement in permissions(plan, kind)]

    assert not [one for one in statements if any(action.startswith("secretsmanager:") for action in one.actions)]
    reading = [one for one in statements if any(action.startswith("ssm:GetParameter") for action in one.actions)]
    assert reading
    assert not [one for one in reading if any(fnmatchcase(path, resource) for resource in one.resources)]


def test_a_store_that_may_not_be_read_is_told() -> None:
    """It is not taken for one that holds nothing: a second key would take the first one's place."""
    session = StubbedSession()
    session.refuses("ssm", ACCOUNT_KEYS_HOME, "get_parameter", "AccessDeniedException")

    with pytest.raises(MachineError, match="ssm:GetParameter"):
        ParameterKeys(door_of(session), ACCOUNT_KEYS_HOME, FLEET).read(NAME)
