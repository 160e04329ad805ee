"""One simulator of many: a pole on a cart, held by a controller whose two gains come from the number of the element."""

import json
import math
import os
import random
from pathlib import Path

_STEPS, _PERIOD = 5_000, 0.02


def balance(gains: tuple[float, float], source: random.Random) -> int:
    """Return after how many steps the pole falls, or the cart leaves its track."""
    place = speed = turn = 0.0
    angle = source.uniform(-0.05, 0.05)
    for step in range(_STEPS):
        push = gains[0] * angle + gains[1] * turn + source.gauss(0, 1)
        force = max(-10.0, min(push, 10.0)) + 0.05 * turn * turn * math.sin(angle)
        fall = (9.8 * math.sin(angle) - math.cos(angle) * force / 1.1) / (
            0.5 * (4 / 3 - 0.1 * math.cos(angle) ** 2 / 1.1)
        )
        drive = force / 1.1 - 0.05 * fall * math.cos(angle) / 1.1
        place, speed = place + _PERIOD * speed, speed + _PERIOD * drive
        angle, turn = angle + _PERIOD * turn, turn + _PERIOD * fall
        if abs(angle) > 0.21 or abs(place) > 2.4:
            return step
    return _STEPS


def main() -> None:
    """Simulate twenty poles, and leave the result with the run."""
    element = int(os.environ.get("BEDPLATE_ELEMENT", "1"))
    source = random.Random(element)
    gains = source.uniform(0, 80), source.uniform(0, 20)
    steps = sum(balance(gains, source) for _ in range(20)) / 20
    print(f"element {element}: gains {gains[0]:.1f} and {gains[1]:.1f} hold the pole for {steps * _PERIOD:.1f} s")
    result = {"element": element, "gains": gains, "seconds": steps * _PERIOD}
    folder = Path(os.environ.get("BEDPLATE_OUTPUT", "output"))
    folder.mkdir(exist_ok=True)
    (folder / "result.json").write_text(json.dumps(result))


if __name__ == "__main__":
    main()
