"""The base of every model of the fleet file, and how a model refuses a value."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, GetCoreSchemaHandler, GetJsonSchemaHandler, PlainSerializer
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

KeyT = TypeVar("KeyT")
ValueT = TypeVar("ValueT")

# A mapping nobody can change: frozen models would otherwise still hold a plain dict.
Table = Annotated[Mapping[KeyT, ValueT], AfterValidator(MappingProxyType), PlainSerializer(dict, return_type=dict)]


class Spec(BaseModel):
    """Frozen, closed to unknown keys, and strict: a string is never taken for a number."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, use_attribute_docstrings=False)


def invalid(code: str, message: str, fix: str) -> PydanticCustomError:
    """Return the error by which a validator refuses a value under a rule of the catalogue.

    `code` is the rule's (`E203`); `message` says what is wrong and why, `fix` the nearest right value.
    """
    return PydanticCustomError(code, "{message}", {"message": message, "fix": fix})


LONGEST = 60
_PLAIN = re.compile(r"[!-~]+")


def shown(value: object) -> str:
    """Return `value` for a message: bare where it is one plain word, else quoted and escaped, cut at 60 characters.

    A mapping or a list is only named as one.
    """
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, tuple):
        return "a list"
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    text = str(value)
    cut = text[:LONGEST] + "..." if len(text) > LONGEST else text
    return cut if _PLAIN.fullmatch(cut) else ascii(cut)


_NOT_A_LABEL = re.compile(r"[^a-z0-9]+")


@dataclass(frozen=True, slots=True)
class Syntax:
    """What a word must look like: used in `Annotated[str, Syntax(...)]`.

    `pattern` must match the whole word; `wanted` says the same in English and reads on after "it is written with";
    `limit` is in characters, `why` names who set it; `reserved` words are refused although they match.
    """

    code: str
    noun: str
    pattern: str
    wanted: str
    example: str
    limit: int = 255
    why: str = "bedplate"
    reserved: frozenset[str] = frozenset()

    def check(self, word: str) -> str:
        """Return the word; a invalid when it breaks the rule."""
        if len(word) > self.limit:
            message = f"{self.noun} has {len(word)} characters; {self.why} allows {self.limit}"
            raise invalid(self.code, message, f"shorten it, as in {self.example}")
        if word in self.reserved:
            raise invalid(self.code, f"{self.noun} {word} is reserved", f"choose another, such as {self.example}")
        if not re.fullmatch(self.pattern, word):
            message = f"{shown(word)} is no {self.noun}: it is written with {self.wanted}"
            raise invalid(self.code, message, f"write {self.nearest(word)}")
        return word

    def nearest(self, word: str) -> str:
        """Return the word as a label, in lower case and hyphens, or as a path; the example where neither is right."""
        label = _NOT_A_LABEL.sub("-", word.lower()).strip("-")
        path = "/" + "/".join(part for part in word.split("/") if part)
        candidates = (label, path) if "/" in word else (label,)
        return next((near for near in candidates if self._is_good(near)), self.example)

    def _is_good(self, word: str) -> bool:
        return bool(re.fullmatch(self.pattern, word)) and word not in self.reserved

    def __get_pydantic_core_schema__(self, source: type[str], handler: GetCoreSchemaHandler) -> CoreSchema:
        """Check the word after pydantic has seen that it is a string."""
        return core_schema.no_info_after_validator_function(self.check, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """Tell editors the pattern, the limit and the example."""
        return handler(schema) | {
            "pattern": f"^{self.pattern}$",
            "maxLength": self.limit,
            "examples": [self.example],
        }
