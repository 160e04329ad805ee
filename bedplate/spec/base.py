"""The base class of the models, validation errors with code and fix, and the syntax of words."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, GetCoreSchemaHandler, GetJsonSchemaHandler, PlainSerializer
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

KeyT = TypeVar("KeyT")
ValueT = TypeVar("ValueT")

# Read-only mapping: a frozen model could otherwise contain a mutable dict.
Table = Annotated[Mapping[KeyT, ValueT], AfterValidator(MappingProxyType), PlainSerializer(dict, return_type=dict)]


class Spec(BaseModel):
    """Base of all models: frozen, without unknown keys, and strict (a string is never converted to a number)."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, use_attribute_docstrings=False)


def invalid(code: str, message: str, fix: str) -> PydanticCustomError:
    """Return the validation error for a violated rule: its code (`E203`), a message and a fix."""
    return PydanticCustomError(code, "{message}", {"message": message, "fix": fix})


LONGEST = 60
_PLAIN = re.compile(r"[!-~]+")


def shown(value: object) -> str:
    """Return a value for a message: a plain word as it is, other text quoted and escaped, at most 60 characters.

    Mappings and lists become "a mapping" and "a list".
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
    """The syntax of a word, for `Annotated[str, Syntax(...)]`.

    `pattern` must match the whole word; `form` describes it in English, after "use". `limit` is in characters and set
    by `limited_by`. `reserved` words are rejected although they match.
    """

    code: str
    noun: str
    pattern: str
    form: str
    example: str
    limit: int = 255
    limited_by: str = "bedplate"
    reserved: frozenset[str] = frozenset()

    def check(self, word: str) -> str:
        """Return the word; raise a validation error if it violates the syntax."""
        if len(word) > self.limit:
            message = f"the {self.noun} has {len(word)} characters; {self.limited_by} allows {self.limit}"
            raise invalid(self.code, message, f"shorten it to at most {self.limit} characters")
        if word in self.reserved:
            raise invalid(self.code, f"{self.noun} {word} is reserved", f"use another, such as {self.example}")
        if not re.fullmatch(self.pattern, word):
            message = f"invalid {self.noun} {shown(word)}: use {self.form}"
            near = self.nearest(word)
            raise invalid(self.code, message, f"write {near}" if near else f"write it in the form {self.example}")
        return word

    def nearest(self, word: str) -> str | None:
        """Return the word as a lower-case label, as a path, or up to an invalid character; None if none is valid."""
        label = _NOT_A_LABEL.sub("-", word.lower()).strip("-")
        path = "/" + "/".join(part for part in word.split("/") if part)
        near = next((text for text in (label, path if "/" in word else "") if self._is_valid(text)), None)
        if near is None and self.example.startswith("'"):
            start = re.match(f"({self.pattern})(?![0-9])", word)
            return f"'{start[0]}'" if start else None
        return near

    def _is_valid(self, word: str) -> bool:
        return bool(re.fullmatch(self.pattern, word)) and word not in self.reserved

    def __get_pydantic_core_schema__(self, source: type[str], handler: GetCoreSchemaHandler) -> CoreSchema:
        """Return the schema of pydantic: check the word once it is known to be a string."""
        return core_schema.no_info_after_validator_function(self.check, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """Return the JSON Schema with pattern, limit and example."""
        return handler(schema) | {
            "pattern": f"^{self.pattern}$",
            "maxLength": self.limit,
            "examples": [self.example],
        }
