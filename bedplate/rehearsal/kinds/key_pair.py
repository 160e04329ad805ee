"""EC2 key pairs, imported from a public key."""

from collections.abc import Iterator
from typing import Any

from bedplate.rehearsal.kind import Complaint, Kind, Naming, Props, replaces, updates
from bedplate.rehearsal.kinds.chosen_name import chosen_name
from bedplate.rehearsal.kinds.ec2_tags import retag
from bedplate.rehearsal.kinds.limits import Text, beyond
from bedplate.rehearsal.kinds.undoing import undoing
from bedplate.rehearsal.refusal import Refusal
from bedplate.rehearsal.simulation import Aws
from bedplate.rehearsal.unknown import is_known

_KINDS = ("ssh-rsa ", "ssh-ed25519 ")


def _create(aws: Aws, inputs: Props) -> str:
    name = chosen_name(inputs, "keyName")
    material = str(inputs["publicKey"]).encode()
    made = aws.call("ec2", "import_key_pair", KeyName=name, PublicKeyMaterial=material)
    with undoing(lambda: _delete(aws, name, inputs)):
        retag(aws, made["KeyPairId"], {}, inputs)
    return name


def _found(aws: Aws, ident: str) -> dict[str, Any]:
    pairs = aws.call("ec2", "describe_key_pairs", KeyNames=[ident])["KeyPairs"]
    if not pairs:
        raise Refusal("InvalidKeyPair.NotFound", f"The keypair '{ident}' does not exist")
    found: dict[str, Any] = pairs[0]
    return found


def _update(aws: Aws, ident: str, old: Props, new: Props) -> None:
    retag(aws, _found(aws, ident)["KeyPairId"], old, new)


def _read(aws: Aws, ident: str, inputs: Props) -> dict[str, Any]:
    found = _found(aws, ident)
    return {
        "arn": aws.arn("ec2", f"key-pair/{ident}"),
        "fingerprint": found["KeyFingerprint"],
        "keyName": ident,
        "keyPairId": found["KeyPairId"],
        "keyType": "ed25519" if str(inputs.get("publicKey", "")).startswith("ssh-ed25519") else "rsa",
    }


def _delete(aws: Aws, ident: str, outputs: Props) -> None:
    aws.call("ec2", "delete_key_pair", KeyName=ident)


def _complaints(aws: Aws, inputs: Props) -> Iterator[Complaint]:
    yield from beyond(inputs, {"keyName": Text(1, 255)})
    key = inputs.get("publicKey")
    if is_known(key) and not str(key).startswith(_KINDS):
        yield Complaint("publicKey", "InvalidKey.Format: EC2 takes RSA and ED25519 keys of OpenSSH")


KEY_PAIR = Kind(
    token="aws:ec2/keyPair:KeyPair",
    inputs=updates("tags") | replaces("keyName", "keyNamePrefix", "publicKey"),
    computed=frozenset({"keyName", "keyNamePrefix"}),
    naming=Naming(key="keyName", longest=255),
    create=_create,
    read=_read,
    update=_update,
    delete=_delete,
    complaints=_complaints,
)
