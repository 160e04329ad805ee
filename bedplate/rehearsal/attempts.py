"""A call sent until AWS answers it: again after a throttle, an error inside AWS or a lost reply, at most 25 times.

As the AWS provider's client does, but for the waits, which nobody would sit through, and but for one more thing: what
a lost reply may have told is looked for before anything is made a second time.
"""

import re
from collections.abc import Callable
from typing import Any, Never

from bedplate.rehearsal.call import Call
from bedplate.rehearsal.found_again import LOOKS, RESENT
from bedplate.rehearsal.look import Ask, Reply
from bedplate.rehearsal.outage import NO_REPLY, RETRYABLE, Unanswered
from bedplate.rehearsal.refusal import Refusal
from bedplate.rehearsal.weather import Fault, Weather, answer

MOST = 25  # `max_retries` of the AWS provider

# How AWS says that what is asked for is so already.
_DONE = re.compile(r"Already|Duplicate|Exists")
_UNDONE = re.compile(r"NotFound|NoSuch|NotAttached")
_UNDOING = ("delete_", "detach_", "disassociate_", "release_", "remove_", "revoke_", "terminate_")


class Untold(dict[str, Any]):
    """The reply of a call that is known to have had its effect, and whose words are lost."""

    def __missing__(self, key: str) -> Never:
        raise Refusal(NO_REPLY, f"a reply was lost, and with it {key}: what was made has to be looked for by hand")


def carried(call: Call, weather: Weather, ask: Ask, *, has_token: bool, note: Callable[[Fault], None]) -> Reply:
    """Send a call through the weather; return its reply. Raises Refusal, and Unanswered when no attempt was served.

    `note` hears of each fault that an attempt met. A call that has a token is answered alike however often it comes,
    which moto does not know.
    """
    lost: Reply | None = None
    for attempt in range(1, MOST + 1):
        if fault := weather.striking(call, attempt):
            note(fault)
            told = answer(fault, call)
            if told.code not in RETRYABLE:
                raise told
            continue
        if lost is not None:
            return lost if has_token else _sent_again(call, ask)
        reply = ask(call)
        fault = None if call.is_reading else weather.losing(call, attempt)
        if fault is None:
            return reply
        note(fault)
        lost = reply
    raise Unanswered(told.code, f"{told.message} ({MOST} attempts)")


def _sent_again(call: Call, ask: Ask) -> Reply:
    """Return what a call came to that may have had its effect: found, or had now."""
    look = LOOKS.get(call.name)
    if look is not None:
        found = look(call, ask)
        return found if found is not None else ask(call)
    if call.is_making and call.name not in RESENT:
        told = f"the reply to {call.name} was lost: there may be one, and nothing says which"
        raise Refusal(NO_REPLY, told)
    try:
        return ask(call)
    except Refusal as refusal:
        pattern = _UNDONE if call.operation.startswith(_UNDOING) else _DONE
        if not pattern.search(refusal.code):
            raise
        return Untold()
