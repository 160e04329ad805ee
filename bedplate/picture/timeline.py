"""The plot of a simulation or of observations as SVG: machines by pool, and pods that wait and run, over time."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from bedplate.capacity.simulator import Frame
from bedplate.picture.template import render

WIDTH, HEIGHT = 792, 190  # of a panel
LABELS, MINUTES = 12, (10, 20, 30, 60, 120, 180, 240, 360)  # the most labels of the time axis, and their distances


@dataclass(frozen=True, slots=True)
class Panel:
    """One plot: the points of each series, and the highest value; areas lie on those before, lines do not."""

    title: str
    most: float
    points: Mapping[str, str]
    is_stacked: bool


def timeline(title: str, frames: Sequence[Frame]) -> str:
    """Return a self-contained SVG document."""
    # Frames after the last machine say nothing.
    last = max((at for at, frame in enumerate(frames) if any(frame.machines.values()) or frame.running), default=0)
    frames = frames[: last + 2]
    times = [frame.time for frame in frames]
    pools = [name for name in frames[0].machines if any(frame.machines[name] for frame in frames)]
    machines = {name: [frame.machines[name] for frame in frames] for name in pools}
    has_gpus = any(frame.running_gpus for frame in frames)
    work = {
        "running": [frame.running_gpus if has_gpus else frame.running for frame in frames],
        "waiting": [frame.pending_gpus if has_gpus else frame.pending for frame in frames],
    }
    panels = (_stacked("machines", machines, times), _lines("GPUs of pods" if has_gpus else "pods", work, times))
    end = max(times[-1], 1.0)
    step = next((step for step in MINUTES if end / 60 / step <= LABELS), MINUTES[-1])
    minutes = range(0, int(end / 60) + 1, step)
    hours = [(f"{minute // 60}:{minute % 60:02}", WIDTH * minute * 60 / end) for minute in minutes]
    return render("timeline.svg.j2", title=title, panels=panels, hours=hours, width=WIDTH, height=HEIGHT)


def _stacked(title: str, series: Mapping[str, Sequence[int]], times: Sequence[float]) -> Panel:
    most = max((1, *map(sum, zip(*series.values(), strict=True))))
    below, points = [0] * len(times), {}
    for name, values in series.items():
        top = [a + b for a, b in zip(below, values, strict=True)]
        points[name] = " ".join((*_steps(times, top, most), *reversed([*_steps(times, below, most)])))
        below = top
    return Panel(title, most, points, is_stacked=True)


def _lines(title: str, series: Mapping[str, Sequence[int]], times: Sequence[float]) -> Panel:
    most = max((1, *map(max, series.values())))
    points = {name: " ".join(_steps(times, values, most)) for name, values in series.items()}
    return Panel(title, most, points, is_stacked=False)


def _steps(times: Sequence[float], values: Sequence[float], most: float) -> Iterator[str]:
    """Yield the points of a line that stays level until the next value."""
    for at, (time, value) in enumerate(zip(times, values, strict=True)):
        x, y = WIDTH * time / max(times[-1], 1.0), HEIGHT - HEIGHT * value / most
        before = values[at - 1] if at else value
        if before != value:
            yield f"{x:.1f},{HEIGHT - HEIGHT * before / most:.1f}"
        if at in {0, len(values) - 1} or before != value:
            yield f"{x:.1f},{y:.1f}"
