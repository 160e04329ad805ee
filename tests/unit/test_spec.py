"""The models of the fleet file: addresses, names, the JSON Schema, SSH keys, budgets and boundaries."""

from base64 import b64encode
from collections.abc import Iterator
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from pydantic import TypeAdapter, ValidationError
from pydantic_core import PydanticCustomError
from ruamel.yaml import YAML

from bedplate.spec.fleet import Alarms, Budget, Identity, fleet_schema, schema_at
from bedplate.spec.network import check_address, check_block, check_prefix
from bedplate.spec.sshkey import check_key
from bedplate.spec.text import HostLabel

BLOCK = "write four numbers from 0 to 255, a slash and a prefix length from 0 to 32"
PRIVATE = "write a block of 10.0.0.0/8, 172.16.0.0/12 or 192.168.0.0/16"


@pytest.mark.parametrize(
    ("value", "code", "fix"),
    [
        ("10.0.0.1/16", "E212", "write 10.0.0.0/16"),
        ("10.0.0.0", "E211", "write 10.0.0.0/8, or with another prefix length"),
        ("10.0.0.0/255.255.0.0", "E213", "write 10.0.0.0/16"),
        ("10.0.0.0/0.0.255.255", "E213", "write 10.0.0.0/16"),
        ("10.0.0.0/08", "E213", "write 10.0.0.0/8"),
        ("010.0.0.0/8", "E213", "write 10.0.0.0/8"),
        (" 10.0.0.0/8", "E213", "write 10.0.0.0/8"),
        ("10.0.0.0/8\n", "E213", "write 10.0.0.0/8"),
        ("\uff11\uff10.0.0.0/8", "E213", BLOCK),
        ("10.0.0.0/33", "E210", BLOCK),
        ("10.0.0/8", "E210", "write 10.0.0.0/8"),
        (167772160, "E210", PRIVATE),
        (True, "E210", PRIVATE),
        (b"\n\0\0\0", "E210", PRIVATE),
        ("fd00::/8", "E214", PRIVATE),
        ("::ffff:10.0.0.0/104", "E214", PRIVATE),
    ],
)
def test_a_block_must_be_in_canonical_form(value: object, code: str, fix: str) -> None:
    """Python accepts most of these; the fix is the canonical form, if it is clear."""
    with pytest.raises(PydanticCustomError) as error:
        check_block(value)

    assert error.value.type == code
    assert error.value.context is not None
    assert error.value.context["fix"] == fix


def test_canonical_forms_are_read() -> None:
    """A block, an address and a prefix length are parsed."""
    assert check_block("10.64.0.0/10") == IPv4Network("10.64.0.0/10")
    assert check_address("192.168.40.1") == IPv4Address("192.168.40.1")
    assert check_prefix("/22") == 22


@pytest.mark.parametrize("value", ["1.2.3", "1.2.3.4/32", "1.2.3.256", "1.2.3.04", "1.2.3.4 ", "::1", 16909060])
def test_an_address_must_be_four_numbers(value: object) -> None:
    """An address has one form only."""
    with pytest.raises(PydanticCustomError):
        check_address(value)


@pytest.mark.parametrize("value", ["22", 22, "/33", "/022", "/-1", "/\u0662", "/2 2", None])
def test_a_prefix_length_must_start_with_a_slash(value: object) -> None:
    """A number alone could be a count of addresses."""
    with pytest.raises(PydanticCustomError):
        check_prefix(value)


LABEL = TypeAdapter(HostLabel)


@pytest.mark.parametrize("word", ["localhost", "laptops"])
def test_reserved_host_names_are_rejected(word: str) -> None:
    """The reserved names already have a meaning."""
    with pytest.raises(ValidationError, match=f"host name {word} is reserved"):
        LABEL.validate_python(word)


def test_names_that_start_with_a_reserved_word_are_accepted() -> None:
    """Only the whole word is reserved."""
    assert LABEL.validate_python("laptops-1") == "laptops-1"


EXAMPLES = Path(__file__).parents[2] / "examples"


def properties(schema: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield every key of every model with its schema, references followed."""
    models = {"Fleet": schema, **schema["$defs"]}
    for model, part in models.items():
        for name, key in part.get("properties", {}).items():
            named = schema["$defs"][key["$ref"].rpartition("/")[2]] if "$ref" in key else {}
            yield f"{model}.{name}", named | key


KEYS = dict(properties(fleet_schema()))


@pytest.mark.parametrize("name", KEYS)
def test_every_key_has_a_title_and_a_description(name: str) -> None:
    """Editors show both; a description is longer than the title."""
    key = KEYS[name]

    assert key["title"]
    assert len(key["description"]) > len(key["title"])


def test_every_mapping_is_closed_to_unknown_keys() -> None:
    """So editors mark misspelt keys."""
    models = [part for part in [fleet_schema(), *fleet_schema()["$defs"].values()] if "properties" in part]

    assert all(part["additionalProperties"] is False for part in models)


def test_no_key_may_be_null() -> None:
    """A key without a value is an error."""
    assert "null" not in repr(fleet_schema())


@pytest.mark.parametrize("example", sorted(file.name for file in EXAMPLES.glob("*.yaml")))
def test_the_keys_of_the_examples_are_in_the_schema(example: str) -> None:
    """Every mapping of an example has only keys of the schema."""

    def check(value: object, path: tuple[str | int, ...]) -> None:
        if isinstance(value, list):
            for index, item in enumerate(value):
                check(item, (*path, index))
        if isinstance(value, dict):
            keys = schema_at(path, value.get("kind")).get("properties", ())
            assert set(value) <= set(keys) or not keys
            for name, item in value.items():
                check(item, (*path, name))

    check(YAML(typ="safe").load(EXAMPLES / example), ())


def test_the_schema_proposes_valid_values() -> None:
    """Editors insert the example of a key; one for all addresses or blocks is invalid for most keys."""
    examples = {
        (model, key): part["examples"][0]
        for model, schema in fleet_schema()["$defs"].items()
        for key, part in schema.get("properties", {}).items()
        if "examples" in part
    }

    assert IPv4Address(examples["Gateway", "public"]).is_global
    assert 16 <= IPv4Network(examples["Region", "block"]).prefixlen <= 20
    assert 16 <= check_prefix(examples["Network", "region_size"]) <= 20
    assert examples["ControlPlane", "type"] == "m7i.large"
    assert {examples[key] for key in (("Gpus", "model"), ("LaptopGateway", "site"))} == {"titan-x", "office"}


PublicKey = ed25519.Ed25519PublicKey | ec.EllipticCurvePublicKey | rsa.RSAPublicKey


def line(key: PublicKey) -> str:
    """Return a public key in OpenSSH's format."""
    return key.public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH).decode()


ED25519 = line(ed25519.Ed25519PrivateKey.generate().public_key())
ECDSA = line(ec.generate_private_key(ec.SECP384R1()).public_key())


def rsa_of(bits: int) -> str:
    """Return the line of an RSA public key with a modulus of this size."""
    modulus = (1 << (bits - 1)) + 1
    return line(rsa.RSAPublicNumbers(65537, modulus).public_key())


@pytest.mark.parametrize(
    "key",
    [ED25519, ECDSA, rsa_of(3072), rsa_of(4096), f"{ED25519} ada@laptop, the new one"],
    ids=["ed25519", "ecdsa", "rsa-3072", "rsa-4096", "with a comment"],
)
def test_strong_public_keys_are_accepted(key: str) -> None:
    """A key may have a comment."""
    assert check_key(key) == key


BLOB = ED25519.split()[1]
INVALID_KEYS = {
    "a private key": (
        "E502",
        "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXk\n-----END OPENSSH PRIVATE KEY-----",
    ),
    "PuTTY's private key": ("E502", "PuTTY-User-Key-File-3: ssh-ed25519"),
    "two lines": ("E508", f"{ED25519} a\n{ED25519} b"),
    "options": ("E507", f'command="id",no-pty {ED25519}'),
    "DSA": ("E509", f"ssh-dss {BLOB}"),
    "a certificate": ("E509", f"ssh-ed25519-cert-v01@openssh.com {BLOB}"),
    "RSA of 2048 bits": ("E510", rsa_of(2048)),
    "RSA of 3071 bits": ("E510", rsa_of(3071)),
    "another type than the blob's": ("E506", f"ssh-rsa {BLOB}"),
    "a blob cut short": ("E506", f"ssh-ed25519 {BLOB[:-8]}"),
    "a blob with something behind": ("E506", f"ssh-ed25519 {BLOB}AAAA"),
    "no base64": ("E506", "ssh-ed25519 AAAA!"),
    "an empty blob": ("E506", "ssh-ed25519"),
    "an endless length": ("E506", "ssh-ed25519 " + b64encode(b"\xff\xff\xff\xffx").decode()),
    "a fingerprint": ("E506", "SHA256:abcdefghijklmnopqrstuvwxyz"),
    "spaces around": ("E506", f" {ED25519}"),
    "a control character": ("E506", f"{ED25519} a\x1b[2J"),
    "a comment in another script": ("E506", f"{ED25519} \u0430da"),
}


@pytest.mark.parametrize("case", INVALID_KEYS)
def test_other_keys_are_rejected_with_their_own_rule(case: str) -> None:
    """The message does not contain any part of the key."""
    code, text = INVALID_KEYS[case]

    with pytest.raises(PydanticCustomError) as error:
        check_key(text)

    assert error.value.type == code
    assert error.value.context is not None
    assert BLOB[:24] not in str(error.value.context)


BOUND = "arn:aws:iam::111122223333:policy/team/bound"


def test_a_budget_and_a_boundary_are_accepted() -> None:
    """The models keep their values."""
    assert Budget(monthly=5000, email="infra@lab.example").monthly == 5000
    assert Identity(permissions_boundary=BOUND).permissions_boundary == BOUND


@pytest.mark.parametrize("email", ["infra", "a@b", "a b@lab.example", "a@lab.example\n", ""])
def test_an_invalid_email_address_is_rejected(email: str) -> None:
    """AWS could not deliver its notifications."""
    with pytest.raises(ValidationError):
        Budget(monthly=5000, email=email)
    with pytest.raises(ValidationError):
        Alarms(email=email)


@pytest.mark.parametrize("arn", ["bound", BOUND.replace("policy", "role"), BOUND.replace("1111", "")])
def test_an_invalid_policy_arn_is_rejected(arn: str) -> None:
    """IAM would reject it in the middle of a deployment."""
    with pytest.raises(ValidationError):
        Identity(permissions_boundary=arn)
