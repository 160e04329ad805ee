"""What goes wrong with AWS, as an operator is told."""

import boto3
import botocore.exceptions as boto
import pytest
from botocore.parsers import ResponseParserError

from bedplate.account.door import Door, check_account, opened_session
from bedplate.account.trouble import NoCredentials, NotThere, trouble
from bedplate.errors import BedplateError, InputError, MachineError, PartError
from tests.support.stubbed import StubbedSession

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
