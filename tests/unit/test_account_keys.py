"""Keys of the VPN in the account, against a simulated one: read back as written, encrypted, out of nodes' reach."""

from collections.abc import Iterator
from fnmatch import fnmatchcase

import pytest
from moto import mock_aws

from bedplate.account.door import Door, opened_session
from bedplate.account.keys import ParameterKeys, key_alias
from bedplate.errors import MachineError
from stacks.key import alias_name
from stacks.permissions import kinds, permissions
from tests.support.declared import EXAMPLES, plan_of
from tests.support.stubbed import StubbedSession, door_of

HOME, FLEET, NAME = "us-west-2", "lab", "ada.laptop"
TEXT, NEWER = "a key\n" + "x" * 2_500, "the next key\n"


@pytest.fixture
def door() -> Iterator[Door]:
    """Give the door of a simulated account."""
    with mock_aws():
        yield Door(opened_session())


def test_a_key_is_read_as_it_was_written(door: Door) -> None:
    """A newly opened store returns the newest text of a name, and None for a name that was never written."""
    ParameterKeys(door, HOME, FLEET).write({NAME: TEXT, "authority": TEXT})
    ParameterKeys(door, HOME, FLEET).write({NAME: NEWER})

    store = ParameterKeys(door, HOME, FLEET)
    assert (store.read(NAME), store.read("authority"), store.read("grace.laptop")) == (NEWER, TEXT, None)


def test_parameters_are_encrypted_by_the_fleets_own_key(door: Door) -> None:
    """AWS's own key is open to everybody in the account who may read parameters."""
    ParameterKeys(door, HOME, FLEET).write({NAME: TEXT})

    listed = door.call("ssm", HOME, "describe_parameters")["Parameters"]

    assert [(one["Name"], one["Type"], one["KeyId"]) for one in listed] == [
        ("/vpn_keys/lab/ada.laptop", "SecureString", key_alias(FLEET))
    ]


def test_the_key_is_the_one_that_the_stacks_make() -> None:
    """Its alias is written in two places, for the account knows nothing of stacks."""
    assert key_alias(FLEET) == alias_name(plan_of(EXAMPLES / "lab.yaml"), "parameters")


def test_no_node_may_read_a_key() -> None:
    """A machine that somebody took over would else sign certificates of its own."""
    plan = plan_of(EXAMPLES / "lab.yaml")
    path = f"arn:aws:ssm:{HOME}:{plan.account}:parameter/vpn_keys/lab/authority"
    statements = [statement for kind in kinds(plan) for statement in permissions(plan, kind)]

    assert not [one for one in statements if any(action.startswith("secretsmanager:") for action in one.actions)]
    reading = [one for one in statements if any(action.startswith("ssm:GetParameter") for action in one.actions)]
    assert reading
    assert not [one for one in reading if any(fnmatchcase(path, resource) for resource in one.resources)]


def test_a_store_that_may_not_be_read_is_told() -> None:
    """It is not taken for one that holds nothing: a second key would take the first one's place."""
    session = StubbedSession()
    session.refuses("ssm", HOME, "get_parameter", "AccessDeniedException")

    with pytest.raises(MachineError, match="ssm:GetParameter"):
        ParameterKeys(door_of(session), HOME, FLEET).read(NAME)
