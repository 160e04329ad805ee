"""The base of every model of the fleet file, and how a model refuses a value."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, PlainSerializer
from pydantic_core import PydanticCustomError

KeyT = TypeVar("KeyT")
ValueT = TypeVar("ValueT")

# A mapping nobody can change: frozen models would otherwise still hold a plain dict.
Table = Annotated[Mapping[KeyT, ValueT], AfterValidator(MappingProxyType), PlainSerializer(dict, return_type=dict)]


class Spec(BaseModel):
    """Frozen, closed to unknown keys, and strict: a string is never taken for a number."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, use_attribute_docstrings=False)


def refusal(code: str, message: str, fix: str) -> PydanticCustomError:
    """Return the error by which a validator refuses a value under a rule of the catalogue.

    `code` is the rule's (`E203`); `message` says what is wrong and why, `fix` the nearest right value.
    """
    return PydanticCustomError(code, "{message}", {"message": message, "fix": fix})
