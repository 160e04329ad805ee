"""The base class of the models, validation errors with code and fix, and the syntax of words."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
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


def invalid(code: str, message: str, fix: str, noun: str = "") -> PydanticCustomError:
    """Return the validation error for a violated rule: its code (`E203`), a message, a fix, and what was expected."""
    return PydanticCustomError(code, "{message}", {"message": message, "fix": fix, "noun": noun})


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


# Every syntax by its pattern, as the JSON Schema has it.
SYNTAXES: dict[str, "Syntax"] = {}
_NOT_A_LABEL = re.compile(r"[^a-z0-9]+")


@dataclass(frozen=True, slots=True)
class Syntax:
    """The syntax of a word, for `Annotated[str, Syntax(...)]`.

    `pattern` must match the whole word; `form` describes it in English, after "use". `limit` is in characters and set
    by `limited_by`. `reserved` words are rejected although they match. `similar` proposes corrections of a word.
    """

    code: str
    noun: str
    pattern: str
    form: str
    example: str
    limit: int = 255
    limited_by: str = "bedplate"
    reserved: frozenset[str] = frozenset()
    similar: Callable[[str], Iterable[str]] | None = None

    def __post_init__(self) -> None:
        """Make the syntax available by its pattern."""
        SYNTAXES[f"^{self.pattern}$"] = self

    def check(self, word: str) -> str:
        """Return the word; raise a validation error if it violates the syntax."""
        if len(word) > self.limit:
            message = f"the {self.noun} has {len(word)} characters; {self.limited_by} allows {self.limit}"
            raise self._invalid(message, f"shorten it to at most {self.limit} characters")
        if word in self.reserved:
            raise self._invalid(
                f"{self.noun} {word} is reserved: the operating system or bedplate uses it", "use another name"
            )
        if not re.fullmatch(self.pattern, word):
            near = self.nearest(word)
            message = f"invalid {self.noun} {shown(word)}"
            raise (
                self._invalid(f"{message}: use {self.form}", f"write {near}")
                if near
                else self._invalid(message, f"use {self.form}")
            )
        return word

    def _invalid(self, message: str, fix: str) -> PydanticCustomError:
        return invalid(self.code, message, fix, self.noun)

    def nearest(self, word: str) -> str | None:
        """Return the most similar valid word, quoted if YAML requires it; None if there is none."""
        near = next((text for text in self._similar(word) if self._is_valid(text)), None)
        return f"'{near}'" if near and self.example.startswith("'") else near

    def _similar(self, word: str) -> Iterator[str]:
        """Yield the word in other forms: an e-mail address or a full host name cut, as a label, as a path, a part."""
        lower, label = word.lower(), _NOT_A_LABEL.sub("-", word.lower()).strip("-")
        if self.similar:
            yield from self.similar(word)
        if "@" in word or word.count(".") > 1:
            yield re.split(r"[@.]", lower)[0]
        yield label
        yield re.sub(r"^(aws|ssm|[^a-z])+-?", "", label)
        if self.example.startswith("/"):
            yield "/" + "/".join(part for part in word.split("/") if part)
        if self.example.startswith("'"):
            digits = re.sub(r"[^0-9.]", "", word)
            part = re.search(f"(?<![0-9]){self.pattern}(?![0-9])", word)
            yield from (part[0] if part else "", digits)

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
