"""A board as a program, in the folder that `bp board` ships."""

import json
import logging
import os
import time
from collections.abc import Callable
from pathlib import Path
from threading import Event, Thread

from werkzeug.serving import ThreadedWSGIServer

from ..agent.sockets import say

# Seconds for which the page waits for the first look, and the pause after a look for each second of a processor.
_FIRST, _REST = 10.0, 20.0


def main(folder: Path) -> None:
    """Show the board of a folder until a signal comes."""
    facts = json.loads((folder / "board.json").read_text(encoding="utf-8"))
    if "settings" in facts:
        from .trials import StudyPage as Page  # noqa: PLC0415  each is slow to import
    else:
        from .events import RunsPage as Page  # type: ignore[assignment]  # noqa: PLC0415
    # Not in the folder of the code: a session keeps what changes there.
    page = Page(facts, os.environ["MLFLOW_TRACKING_TOKEN"], Path(os.environ["BEDPLATE_OUTPUT"]), say)
    # Pages ask all the time, and the output of a run is for everybody.
    logging.getLogger("werkzeug").setLevel(logging.WARNING)
    has_looked = Event()
    Thread(target=repeat, args=(page.look, lambda: page.pause, has_looked), daemon=True).start()
    # TensorBoard's page looks for data when it is opened.
    has_looked.wait(_FIRST)
    ThreadedWSGIServer(f"unix://{os.environ['BEDPLATE_PAGE']}", 0, page.app).serve_forever()


def repeat(look: Callable[[], object], pause: Callable[[], float], has_looked: Event) -> None:
    """Look again and again, with pauses that leave the processor to others."""
    said = ""
    while True:
        former, said, began = said, "", time.thread_time()
        try:
            look()
        except Exception as error:  # noqa: BLE001  such as of a record, which colleagues can write
            said = f"error: {error}; what is shown stays"
        if said not in {"", former}:
            say(said)
        has_looked.set()
        time.sleep(max(pause(), _REST * (time.thread_time() - began)))
