"""The report of `capacity simulate`."""

from collections.abc import Iterator

from bedplate.capacity.simulator import Simulation
from bedplate.report.columns import aligned


def simulation_lines(simulation: Simulation) -> Iterator[str]:
    """Yield the scenario and its figures."""
    scenario, figures = simulation.scenario, simulation.figures
    yield f"{scenario.name}: {scenario.about}; {scenario.horizon / 3600:g} hours"
    useful = figures.useful_gpu_hours / figures.gpu_hours if figures.gpu_hours else 0.0
    running = "never" if figures.all_running is None else _time(figures.all_running)
    late = f", {figures.unstarted} never started" if figures.unstarted else ""
    rows = [
        ("pods", f"{figures.pods}{late}"),
        ("last start after the burst", running),
        ("wait", f"{_time(figures.wait_p50)} median, {_time(figures.wait_p95)} p95, {_time(figures.wait_max)} longest"),
        ("again after a stop", f"{_time(figures.again_p95)} p95"),
        ("cost", f"{figures.usd:,.0f} USD, {figures.machine_hours:,.1f} machine hours"),
        ("GPU hours", f"{figures.gpu_hours:,.1f} paid, {useful:.0%} of them useful") if figures.gpu_hours else (),
        ("launches", f"{figures.launches}, {figures.spills} spills, {figures.failed} refused by AWS"),
        ("doubled", f"{figures.doubled} machines that no waiting pod needed"),
        ("unused", f"{figures.never_used} machines ran no pod, {figures.never_joined} never became nodes"),
        ("pods stopped", f"{figures.evicted} moved, {figures.interrupted} by AWS, {figures.killed} killed"),
        ("people's cordons undone", str(figures.broken_cordons)),
        ("reversals within 30 minutes", str(figures.flips)),
        ("processor time", f"{figures.cpu_per_decision * 1000:.1f} ms a decision, {figures.cpu_longest:.2f} s longest"),
    ]
    yield from aligned(row for row in rows if row)


def _time(seconds: float) -> str:
    return f"{seconds:,.0f} s"
