"""The plot of a simulation or of observations as SVG: machines by pool, and pods that wait and run, over time."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

from bedplate.capacity.simulator import Frame
from bedplate.picture.svg import COLOURS, SANS

_WIDTH, _PANEL, _LEFT, _TOP, _GAP = 880, 190, 64, 64, 74
_PLOT = _WIDTH - _LEFT - 24
_SERIES = ("blue", "orange", "green", "purple", "vermilion", "muted")
_LABELS = 12
_MINUTES = (10, 20, 30, 60, 120, 180, 240, 360)


@dataclass(frozen=True, slots=True)
class _Series:
    """Values over time; an area lies on those before it, a line does not."""

    name: str
    colour: str
    values: Sequence[float]


@dataclass(frozen=True, slots=True)
class _Panel:
    """One plot with its own vertical axis, at a distance from the top."""

    title: str
    series: Sequence[_Series]
    is_stacked: bool
    top: float

    @property
    def most(self) -> float:
        """The highest value."""
        columns = zip(*(series.values for series in self.series), strict=True)
        heights: Iterator[float] = (sum(column) if self.is_stacked else max(column) for column in columns)
        return max(1.0, *heights)


def timeline(title: str, frames: Sequence[Frame]) -> str:
    """Return a self-contained SVG document."""
    # Frames after the last machine say nothing.
    last = max((at for at, frame in enumerate(frames) if any(frame.machines.values()) or frame.running), default=0)
    frames = frames[: last + 2] if last + 2 <= len(frames) else frames
    times = [frame.time for frame in frames]
    pools = [name for name in frames[0].machines if any(frame.machines[name] for frame in frames)]
    machines = [
        _Series(name, _SERIES[at % len(_SERIES)], [frame.machines[name] for frame in frames])
        for at, name in enumerate(pools)
    ]
    has_gpus = any(frame.running_gpus for frame in frames)
    waiting = [frame.pending_gpus if has_gpus else frame.pending for frame in frames]
    running = [frame.running_gpus if has_gpus else frame.running for frame in frames]
    work = (_Series("running", "green", running), _Series("waiting", "vermilion", waiting))
    panels = (
        _Panel("machines", machines, is_stacked=True, top=_TOP),
        _Panel("GPUs of pods" if has_gpus else "pods", work, is_stacked=False, top=_TOP + _PANEL + _GAP),
    )
    height = _TOP + 2 * _PANEL + _GAP + 40
    size = f'width="{_WIDTH}" height="{height}"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" {size} role="img">',
        f"<title>{escape(title)}</title>",
        f"<style>{_style()}</style>",
        f'<rect width="{_WIDTH}" height="{height}" class="page"/>',
        f'<text x="{_LEFT}" y="28" class="title">{escape(title)}</text>',
    ]
    for panel in panels:
        lines += _panel(panel, times)
    return "\n".join((*lines, "</svg>\n"))


def _style() -> str:
    rules = f"text{{font:12px {SANS}}}.title{{font-size:16px;font-weight:600}}.axis{{stroke-width:1}}"
    light, dark = (
        "".join(
            (
                f".page{{fill:{COLOURS['surface'][scheme]}}}text{{fill:{COLOURS['ink'][scheme]}}}",
                f".axis{{stroke:{COLOURS['border'][scheme]}}}",
                *(f".{name}{{fill:{COLOURS[name][scheme]};stroke:{COLOURS[name][scheme]}}}" for name in _SERIES),
            )
        )
        for scheme in (0, 1)
    )
    return f"{rules}{light}.line{{fill:none;stroke-width:1.5}}@media (prefers-color-scheme:dark){{{dark}}}"


def _panel(panel: _Panel, times: Sequence[float]) -> Iterator[str]:
    bottom, end = panel.top + _PANEL, max(times[-1], 1.0)
    xs = [_LEFT + _PLOT * time / end for time in times]
    below = [0.0] * len(times)
    for series in panel.series:
        values = [a + b for a, b in zip(below, series.values, strict=True)] if panel.is_stacked else series.values
        points = list(_steps(xs, values, panel))
        if panel.is_stacked:
            points += reversed(list(_steps(xs, below, panel)))
            below = list(values)
        shape = "polygon" if panel.is_stacked else "polyline"
        kind = series.colour if panel.is_stacked else f"{series.colour} line"
        yield f'<{shape} points="{" ".join(points)}" class="{kind}"/>'
    yield f'<line x1="{_LEFT}" y1="{bottom}" x2="{_LEFT + _PLOT}" y2="{bottom}" class="axis"/>'
    for value in (0, panel.most / 2, panel.most):
        y = bottom - _PANEL * value / panel.most
        yield f'<line x1="{_LEFT - 4}" y1="{y:.1f}" x2="{_LEFT}" y2="{y:.1f}" class="axis"/>'
        yield f'<text x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{value:,.0f}</text>'
    step = next((step for step in _MINUTES if end / 60 / step <= _LABELS), _MINUTES[-1])
    for minute in range(0, int(end / 60) + 1, step):
        hour = f"{minute // 60}:{minute % 60:02}"
        x = _LEFT + _PLOT * minute * 60 / end
        yield f'<text x="{x:.1f}" y="{bottom + 18}" text-anchor="middle">{hour}</text>'
    yield from _legend(panel)


def _legend(panel: _Panel) -> Iterator[str]:
    yield f'<text x="{_LEFT}" y="{panel.top - 12}">{panel.title}:</text>'
    x = _LEFT + 110
    for series in panel.series:
        yield f'<rect x="{x}" y="{panel.top - 21}" width="10" height="10" class="{series.colour}"/>'
        yield f'<text x="{x + 15}" y="{panel.top - 12}">{escape(series.name)}</text>'
        x += 34 + 7 * len(series.name)


def _steps(xs: Sequence[float], values: Sequence[float], panel: _Panel) -> Iterator[str]:
    """Yield the points of a line that stays level until the next value."""
    bottom, scale = panel.top + _PANEL, _PANEL / panel.most
    for at, (x, value) in enumerate(zip(xs, values, strict=True)):
        y = bottom - scale * value
        if at and values[at - 1] != value:
            yield f"{x:.1f},{bottom - scale * values[at - 1]:.1f}"
        if at in {0, len(values) - 1} or values[at - 1] != value:
            yield f"{x:.1f},{y:.1f}"
