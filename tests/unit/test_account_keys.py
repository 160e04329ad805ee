"""Keys of the VPN in the account, against a simulated one: read back as written, encrypted, out of nodes' reach."""

from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase

import pytest
from moto import mock_aws

from bedplate.account.door import Door, opened_session
from bedplate.account.keys import ParameterKeys, SecretKeys, key_alias
from bedplate.errors import MachineError
from stacks.key import alias_name
from stacks.permissions import kinds, permissions
from tests.support.declared import EXAMPLES, plan_of
from tests.support.stubbed import StubbedSession, door_of
from vpn.key_store import KeyStore

HOME, FLEET, NAME = "us-west-2", "lab", "ada.laptop"
TEXT, NEWER = "a key\n" + "x" * 2_500, "the next key\n"
STORES: dict[str, Callable[[Door], KeyStore]] = {
    "parameters": lambda door: ParameterKeys(door, HOME, FLEET),
    "secrets": lambda door: SecretKeys(door, HOME, FLEET),
}


@pytest.fixture
def door() -> Iterator[Door]:
    """Give the door of a simulated account."""
    with mock_aws():
        yield Door(opened_session())


@pytest.mark.parametrize("kind", STORES)
def test_a_key_is_read_as_it_was_written(kind: str, door: Door) -> None:
    """The newest, by anybody who opens the store anew; a name that was never written has none."""
    STORES[kind](door).write({NAME: TEXT, "authority": TEXT})
    STORES[kind](door).write({NAME: NEWER})

    store = STORES[kind](door)
    assert (store.read(NAME), store.read("authority"), store.read("grace.laptop")) == (NEWER, TEXT, None)


def test_parameters_are_encrypted_by_the_fleets_own_key(door: Door) -> None:
    """AWS's own key is open to everybody in the account who may read parameters."""
    STORES["parameters"](door).write({NAME: TEXT})

    listed = door.call("ssm", HOME, "describe_parameters")["Parameters"]

    assert [(one["Name"], one["Type"], one["KeyId"]) for one in listed] == [
        ("/vpn_keys/lab/ada.laptop", "SecureString", key_alias(FLEET))
    ]


def test_secrets_are_encrypted_by_the_fleets_own_key(door: Door) -> None:
    """And bear the fleet's name."""
    STORES["secrets"](door).write({NAME: TEXT})

    told = door.call("secretsmanager", HOME, "describe_secret", SecretId="vpn_keys/lab/ada.laptop")

    assert told["KmsKeyId"] == key_alias(FLEET)


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
        STORES["parameters"](door_of(session)).read(NAME)
