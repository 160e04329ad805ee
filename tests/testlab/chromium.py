"""Headless Chromium by its debugging protocol over two pipes: no port, and no driver."""

import json
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.testlab.run import need_program

# One process a browser: a test has few pages, and sandboxes need an account of their own.
_OPTIONS = ("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--remote-debugging-pipe")
_PATIENCE, _PAUSE = 60.0, 0.2


class Chromium:
    """A browser with one page. Methods fail if the browser does."""

    def __init__(self, commands: int, answers: int) -> None:
        self._commands, self._answers, self._number, self._rest = commands, answers, 0, b""
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        self._session = ""
        self._session = self._call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]

    def open(self, address: str) -> None:
        """Go to an address."""
        self._call("Page.navigate", url=address)

    def evaluate(self, script: str) -> Any:  # noqa: ANN401  a document
        """Return the value of an expression of JavaScript in the page."""
        options = {"returnByValue": True, "awaitPromise": True}
        return self._call("Runtime.evaluate", expression=script, **options)["result"].get("value")

    def write(self, text: str) -> None:
        """Type a text where the cursor is, then Shift and Enter."""
        self._call("Input.insertText", text=text)
        key = {"key": "Enter", "code": "Enter", "windowsVirtualKeyCode": 13, "modifiers": 8, "text": "\r"}
        for kind in ("keyDown", "keyUp"):
            self._call("Input.dispatchKeyEvent", type=kind, **key)

    def wait_for(self, text: str, patience: float = _PATIENCE) -> None:
        """Wait until the page shows a text."""
        end, shown = time.monotonic() + patience, ""
        while text not in shown:
            assert time.monotonic() < end, f"the page has no {text!r}: {shown[:2_000]}"
            time.sleep(_PAUSE)
            # A page that is being loaded has no body.
            shown = self.evaluate("document.body ? document.body.innerText : ''") or ""

    def _call(self, method: str, **params: object) -> Any:  # noqa: ANN401  a document
        self._number += 1
        message: dict[str, object] = {"id": self._number, "method": method, "params": params}
        if not method.startswith("Target."):
            message["sessionId"] = self._session
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        while (answer := self._read()).get("id") != self._number:
            pass
        assert "result" in answer, answer
        return answer["result"]

    def _read(self) -> Any:  # noqa: ANN401  a document
        """Return the next answer or event."""
        while b"\0" not in self._rest:
            part = os.read(self._answers, 1 << 16)
            assert part, "the browser has ended"
            self._rest += part
        text, _, self._rest = self._rest.partition(b"\0")
        return json.loads(text)


@contextmanager
def chromium(folder: Path) -> Iterator[Chromium]:
    """Yield a browser with its profile in a folder."""
    need_program("chromium")
    (read_commands, commands), (answers, write_answers) = os.pipe(), os.pipe()
    # Chromium reads 3 and writes 4; a shell moves the pipes there.
    script = f'exec chromium "$@" 3<&{read_commands} 4>&{write_answers}'
    options = (*_OPTIONS, f"--user-data-dir={folder}")
    with (folder.with_suffix(".log")).open("wb") as log:
        process = subprocess.Popen(
            ("bash", "-c", script, "chromium", *options),
            pass_fds=(read_commands, write_answers),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    os.close(read_commands)
    os.close(write_answers)
    try:
        yield Chromium(commands, answers)
    finally:
        # The end of its pipe ends Chromium, with all of its processes.
        os.close(commands)
        with suppress(subprocess.TimeoutExpired):
            process.wait(10)
        process.kill()
        process.wait()
        os.close(answers)
