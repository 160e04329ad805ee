"""What a rehearsal lived through: its weather, how often each fault was met, and the machines that did not come."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from bedplate.rehearsal.climate import Climate
from bedplate.rehearsal.moto_launches import Shortage
from bedplate.rehearsal.weather import FAIR, Weather


@dataclass(frozen=True, slots=True)
class Endured:
    """The trace that a weather left, as values."""

    weather: Weather = FAIR
    met: Mapping[str, int] = field(default_factory=dict)
    """By the fault's text."""
    shortages: tuple[Shortage, ...] = ()


def endured(climate: Climate, weather: Weather) -> Endured:
    """Return what a simulation lived through under a weather."""
    shortages = (climate.shortages[key] for key in sorted(climate.shortages))
    return Endured(weather, {one.text: climate.met[one.text] for one in weather.faults}, tuple(shortages))
