"""The base class of the models, validation errors with code and fix, the syntax of words, and update policies.

Every field of the models carries its policies, what an edit of the key does to a deployed fleet, in
`json_schema_extra=on_edit(...)`. `bedplate.update` collects them into one table, and the JSON Schema shows them under
`x-update`.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, GetCoreSchemaHandler, GetJsonSchemaHandler, PlainSerializer
from pydantic.config import JsonDict
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from bedplate.rules import Rule

KEYWORD = "x-update"


class Effect(StrEnum):
    """The effect of an edit on deployed resources, from none to the most severe."""

    FREE = "free"
    NEW_NODES = "new nodes only"
    REPLACES = "replaces"
    REMOVES = "removes"
    REFUSED = "refused"

    @property
    def weight(self) -> int:
        """How hard the effect is: 0 for none."""
        return list(Effect).index(self)


class Event(StrEnum):
    """How a key was edited: a new value, or an entry of a table or list (or an optional value) added or removed."""

    CHANGED = "changed"
    ADDED = "added"
    REMOVED = "removed"


ADDED, REMOVED, CHANGED = Event.ADDED, Event.REMOVED, Event.CHANGED
# For optional values and for entries of tables.
BOTH = (ADDED, REMOVED)
# For lists, and for optional values.
EVERY = tuple(Event)


@dataclass(frozen=True, slots=True)
class Policy:
    """The effect of one event at one key.

    `key` is a dotted path with `*` for a name or a list index; a policy on a field has none yet. `does` names the
    affected resources; `way` says what to do instead of a refused edit. `grows`: the effect
    is free if the number increases or the new block contains the old one.
    """

    event: Event
    effect: Effect
    does: str
    way: str = ""
    grows: bool = False
    key: str = ""

    @property
    def summary(self) -> str:
        """The effect, with its exception for larger values."""
        return f"{self.effect.value}; free where it grows" if self.grows else self.effect.value


@dataclass(frozen=True, slots=True)
class OnEdit:
    """The policies of one field; pydantic calls it to extend the field's JSON Schema."""

    policies: tuple[Policy, ...]

    def __call__(self, schema: JsonDict) -> None:
        """Add the effect of each event to the schema."""
        schema[KEYWORD] = {policy.event.value: f"{policy.summary}: {policy.does}" for policy in self.policies}


def on_edit(*policies: tuple[Policy, ...]) -> OnEdit:
    """Return the policies of a field, one per event: `json_schema_extra=on_edit(free("what it affects"))`."""
    order = list(Event)
    return OnEdit(tuple(sorted((policy for group in policies for policy in group), key=lambda p: order.index(p.event))))


def free(does: str, *events: Event) -> tuple[Policy, ...]:
    """Return policies for edits that touch no running resource; without events, for a changed value."""
    return tuple(Policy(event, Effect.FREE, does) for event in events or (CHANGED,))


def new_nodes(does: str, *events: Event) -> tuple[Policy, ...]:
    """Return policies for edits that only new machines get; without events, for a changed value."""
    return tuple(Policy(event, Effect.NEW_NODES, does) for event in events or (CHANGED,))


def replaces(does: str, *events: Event) -> tuple[Policy, ...]:
    """Return policies for edits that delete a resource and create another."""
    return tuple(Policy(event, Effect.REPLACES, does) for event in events or (CHANGED,))


def removes(does: str, *events: Event) -> tuple[Policy, ...]:
    """Return policies for edits that delete resources; without events, for a removed entry."""
    return tuple(Policy(event, Effect.REMOVES, does) for event in events or (REMOVED,))


def entries(added: str, removed: str) -> tuple[Policy, ...]:
    """Return the policies of a table or list: adding an entry is free, removing one deletes its resources."""
    return (*free(added, ADDED), *removes(removed))


def refused(does: str, way: str, *events: Event) -> tuple[Policy, ...]:
    """Return policies for edits that a deployed fleet does not allow; `way` says what to do instead."""
    return tuple(Policy(event, Effect.REFUSED, does, way) for event in events or (CHANGED,))


def shrinks(does: str, effect: Effect = Effect.REMOVES, way: str = "") -> tuple[Policy, ...]:
    """Return the policy for a value that is free to grow, and has an effect if it shrinks."""
    return (Policy(CHANGED, effect, does, way, grows=True),)


# Ways out that several refused edits share.
MOVE_DATA = "move the data first, then `pulumi state unprotect` the listed resources and run again"
RELEASE = "remove its resources, then run `bedplate plan --write --release PATH`"
NEW_FLEET = "create a new fleet in another folder"


KeyT = TypeVar("KeyT")
ValueT = TypeVar("ValueT")

# Read-only mapping: a frozen model could otherwise contain a mutable dict.
Table = Annotated[Mapping[KeyT, ValueT], AfterValidator(MappingProxyType), PlainSerializer(dict, return_type=dict)]


class Spec(BaseModel):
    """Base of all models: frozen, without unknown keys, and strict (a string is never converted to a number)."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, use_attribute_docstrings=False)


def invalid(rule: Rule, message: str, fix: str, noun: str = "") -> PydanticCustomError:
    """Return the validation error for a violated rule: a message, a fix, and what was expected."""
    return PydanticCustomError(rule.code, "{message}", {"message": message, "fix": fix, "noun": noun})


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

    rule: Rule
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
                f"{self.noun} {word} is reserved: AWS, the operating system or bedplate uses it", "use another name"
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
        return invalid(self.rule, message, fix, self.noun)

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
