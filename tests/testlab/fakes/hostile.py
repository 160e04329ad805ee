"""Texts that a user of a machine can write in the name of the machine."""

import json
from collections.abc import Mapping

from bedplate.foreign import LARGEST

HOSTILE: Mapping[str, bytes] = {
    "400 digits": b'{"ok": true, "sentence": "", "time": 1%s, "idle_since": 1%s}' % (b"0" * 400, b"0" * 400),
    "deep list": b"[" * 200_000,
    "deep object": b'{"ok":' * 9_000,
    "deep value": b'{"ok": true, "sentence": "", "time": 1, "idle_since": 1, "more": %s}' % (b"[" * 900 + b"]" * 900),
    "infinite": b'{"ok": true, "sentence": "", "time": Infinity, "idle_since": 1}',
    "infinite power": b'{"ok": true, "sentence": "", "time": 1e999, "idle_since": 1e999}',
    "no number": b'{"ok": true, "sentence": "", "time": NaN, "idle_since": NaN}',
    "too large": b'{"ok": true, "sentence": "", "time": 1, "idle_since": 1}' + b" " * LARGEST,
    "wrong types": b'{"ok": "yes", "sentence": [], "time": "soon", "idle_since": "long ago"}',
    "other value": b"[1]",
    "number": b"7",
    "nothing": b"",
    "duplicate key": b'{"ok": false, "ok": true, "sentence": "", "time": 1, "time": 2, "idle_since": 1}',
    "lone surrogate": b'{"ok": true, "sentence": "\\ud800", "time": 1, "idle_since": 1, "use": "\\ud800"}',
    "no UTF-8": b'{"ok": true, "sentence": "\xff", "time": 1, "idle_since": 1, "use": "\xff"}',
}
CONTROLS = json.dumps({"ok": True, "sentence": "done\n\x1b[2J\u202e", "time": 1_795_000_000}).encode()
"""A valid status whose sentence would control a terminal."""
