"""A rule about how a word of the fleet file is written, told with the nearest right word."""

import re
from dataclasses import dataclass
from typing import Any

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import CoreSchema, core_schema

from bedplate.spec.base import refusal
from bedplate.spec.shown import shown

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
        """Return the word; a refusal when it breaks the rule."""
        if len(word) > self.limit:
            message = f"{self.noun} has {len(word)} characters; {self.why} allows {self.limit}"
            raise refusal(self.code, message, f"shorten it, as in {self.example}")
        if word in self.reserved:
            raise refusal(self.code, f"{self.noun} {word} is reserved", f"choose another, such as {self.example}")
        if not re.fullmatch(self.pattern, word):
            message = f"{shown(word)} is no {self.noun}: it is written with {self.wanted}"
            raise refusal(self.code, message, f"write {self.nearest(word)}")
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
