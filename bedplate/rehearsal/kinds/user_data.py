"""User data: what a machine runs when it first starts, in base64 and no larger than EC2 takes."""

from base64 import b64decode
from binascii import Error as NotBase64
from collections.abc import Iterator

from bedplate.rehearsal.kind import Complaint, Props
from bedplate.rehearsal.unknown import is_known

_LARGEST = 16384  # bytes before encoding: EC2 user guide, "Run commands at launch"


def user_data_complaints(inputs: Props, key: str) -> Iterator[Complaint]:
    """Yield a complaint when the user data under `key` is not in base64, or too large."""
    data = inputs.get(key)
    if not is_known(data) or data == "":
        return
    try:
        size = len(b64decode(str(data), validate=True))
    except (NotBase64, ValueError):
        yield Complaint(key, "InvalidUserData.Malformed: not in base64")
    else:
        if size > _LARGEST:
            yield Complaint(key, f"user data has at most {_LARGEST} bytes, not {size}")


def plain_user_data(inputs: Props) -> bytes | None:
    """Return an instance's user data as the machine will see it; boto3 does the encoding."""
    if inputs.get("userDataBase64"):
        return b64decode(str(inputs["userDataBase64"]))
    return str(inputs["userData"]).encode() if inputs.get("userData") else None
