"""What PAM asks of somebody who wants to become another, from the texts of its files; never runs PAM, nor reads a file.

Knows Linux-PAM's own reckoning of a stack. Source: pam.conf(5), and _pam_dispatch_aux of Linux-PAM 1.5.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

COMMON = "common-auth"
_LINE = re.compile(r"\s*-?auth\s+(?P<control>\[[^\]]*\]|\S+)\s+(?P<module>\S+)\s*(?P<words>.*)", re.IGNORECASE)
_INCLUDE = re.compile(r"\s*@include\s+(?P<file>\S+)")
# A service's own lines, and files of somebody's own among them.
_OURS = re.compile(r"\s*(-?auth\s|@include\s+(?!common-))", re.IGNORECASE)
_BEGINS, _ENDS = "# here are the per-package modules", "# end of pam-auth-update config"
# Modules that refuse whoever knows nothing and is not root; of any other it is believed that it lets everybody pass.
_REFUSING = frozenset({"pam_deny.so", "pam_rootok.so", "pam_sss.so", "pam_unix.so"})
_REFUSING_SO = {"pam_faillock.so": "authfail", "pam_wheel.so": "group="}
_TRUST = re.compile(r"\b(trust|deny)\b")
_CONTROLS = {
    "required": {"success": "ok", "default": "bad"},
    "requisite": {"success": "ok", "default": "die"},
    "sufficient": {"success": "done", "default": "ignore"},
    "optional": {"success": "ok", "default": "ignore"},
}


@dataclass(frozen=True, slots=True)
class Rule:
    """A line of the auth part: what becomes of the stack by how the module answers."""

    control: str
    module: str
    words: str

    @property
    def passes(self) -> bool:
        """Whether the module lets somebody pass who knows nothing and is not root."""
        word = _REFUSING_SO.get(self.module)
        refuses = self.module in _REFUSING or (word is not None and word in self.words)
        return not refuses or (self.module == "pam_wheel.so" and bool(_TRUST.search(self.words)))

    @property
    def action(self) -> str:
        """What becomes of the stack: `ok`, `done`, `bad`, `die`, `ignore`, `reset`, or how many lines are left out."""
        answers = _CONTROLS.get(self.control.lower()) or dict(_answers(self.control))
        return answers.get("success" if self.passes else "auth_err", answers.get("default", "bad"))


def rules(service: str, texts: Mapping[str, str]) -> Iterator[Rule]:
    """Yield the auth part of a service by the text of each file, with those that it includes; one of itself ends."""
    known = {name: text for name, text in texts.items() if name != service}
    for line in texts.get(service, "").replace("\\\n", " ").splitlines():
        whole = line.partition("#")[0]
        if include := _INCLUDE.match(whole):
            yield from rules(include["file"], known)
        elif (found := _LINE.match(whole)) and found["control"].lower() in {"include", "substack"}:
            yield from rules(found["module"], known)
        elif found:
            yield Rule(found["control"], found["module"], found["words"].strip())


def admits(service: str, texts: Mapping[str, str]) -> bool:
    """Tell whether somebody who knows nothing, and is not root, gets through."""
    stack, place, judged = tuple(rules(service, texts)), 0, ""
    while place < len(stack):
        rule = stack[place]
        action, place = rule.action, place + 1
        if action.isdecimal():
            place += int(action)
        elif action in {"bad", "die"}:
            judged = "refused"
        elif action in {"ok", "done"} and not judged:
            judged = "admitted" if rule.passes else "refused"
        elif action in {"ok", "done"} and judged == "admitted" and not rule.passes:
            judged = "refused"
        elif action == "reset":
            judged = ""
        if action == "die" or (action == "done" and judged == "admitted"):
            break
    return judged == "admitted"


def with_auth(text: str, auth: tuple[str, ...]) -> str:
    """Return the text of a service whose own auth lines are these, where the first was; unchanged if they are so."""
    lines = text.replace("\\\n", " ").splitlines()
    own = [place for place, line in enumerate(lines) if _OURS.match(line)]
    if [lines[place].split() for place in own] == [line.split() for line in auth]:
        return text
    first = own[0] if own else 0
    rest = [line for line in lines[first:] if not _OURS.match(line)]
    return "".join(f"{line}\n" for line in (*lines[:first], *auth, *rest))


def with_generated_auth(text: str) -> str:
    """Return the text of common-auth without auth lines outside the part that pam-auth-update writes, and keeps."""
    lines = text.splitlines()
    begins = next((place for place, line in enumerate(lines) if line.startswith(_BEGINS)), 0)
    ends = next((place for place, line in enumerate(lines) if line.startswith(_ENDS)), len(lines))
    kept = (line for place, line in enumerate(lines) if begins <= place <= ends or not _OURS.match(line))
    return "".join(f"{line}\n" for line in kept)


def _answers(control: str) -> Iterator[tuple[str, str]]:
    for word in control.strip("[]").split():
        answer, _, action = word.partition("=")
        yield answer.lower(), action.lower()
