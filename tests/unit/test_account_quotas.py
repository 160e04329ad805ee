"""What an account was granted, as Service Quotas tells it."""

from bedplate.account.quotas import granted
from bedplate.catalog.quotas import QuotaFacts
from bedplate.errors import PartError
from bedplate.plan.quotas import Need
from tests.support.stubbed import StubbedSession, door_of

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
