"""Completion of values: names in the fleet file, examples and scenarios. A faulty file completes nothing."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from bedplate.folder.example import example_names
from bedplate.folder.files import FLEET_FILE, find_fleet_file
from bedplate.load.source import read_source
from bedplate.load.yaml import Composer

# Of each group, whose maximum can be hundreds.
_MOST_NUMBERS = 9


def complete(ctx: Any, param: Any, incomplete: str) -> list[str]:  # noqa: ANN401  typer's own types
    """Return the values of a parameter that begin with a text. Raises and prints nothing: the operator is typing."""
    try:
        named = ctx.params.get("fleet_option") or ctx.params.get("fleet") or FLEET_FILE
        is_named = param.metavar in _NAMES
        fleet = Composer(read_source(find_fleet_file(Path(named)))).compose().plain_mapping() if is_named else {}
        return [name for name in VALUES[param.metavar](fleet) if name.startswith(incomplete)]
    except Exception:  # noqa: BLE001  a missing file, or one that `check` refuses
        return []


def _machines(fleet: Mapping[str, Any]) -> Iterator[str]:
    """Yield the permanent machines, and the first names that machines of groups register."""
    for site, facts in fleet.get("sites", {}).items():
        yield from (f"{machine}.{site}" for machine in facts.get("machines", {}))
    gateways = fleet.get("vpn", {}).get("laptops", {}).get("gateways", ())
    yield from (f"laptops.{gateway['region']}" for gateway in gateways if "region" in gateway)
    if region := fleet.get("hub", {}).get("region"):
        yield f"hub.{region}"
    members = fleet.get("kubernetes", {}).get("control_plane", {}).get("count", 0)
    home = next((region for region, facts in fleet["regions"].items() if facts.get("home")), "")
    yield from (f"control-{number}.{home}" for number in range(1, members + 1))
    for group, facts in fleet.get("groups", {}).items():
        numbers = range(1, min(facts["nodes"]["max"], _MOST_NUMBERS) + 1) if facts["use"] == "ssh" else ()
        regions = dict.fromkeys(rung["region"] for rung in facts["ladder"])
        yield from (f"{group}-{number}.{region}" for number in numbers for region in regions)


def _endpoints(fleet: Mapping[str, Any]) -> Iterator[str]:
    yield from ("internet", *_machines(fleet), *fleet["regions"], *fleet.get("sites", ()))
    zones = (zone for region in fleet["regions"].values() for zone in region["zones"])
    yield from (f"{zone}{part}" for zone in zones for part in ("", "/edge"))


def _scenarios(_: Mapping[str, Any]) -> Iterable[str]:
    from bedplate.capacity.scenario import SCENARIOS

    return SCENARIOS


_NAMES: Mapping[str, Callable[[Mapping[str, Any]], Iterable[str]]] = {
    **dict.fromkeys(("GROUP", "[GROUP]", "[GROUP|POD]"), lambda fleet: fleet["groups"]),
    **dict.fromkeys(("MACHINE", "MACHINE..."), _machines),
    "MACHINE|GROUP": lambda fleet: [*fleet["groups"], *_machines(fleet)],
    **dict.fromkeys(("FROM", "TO"), _endpoints),
    "USER": lambda fleet: fleet["people"],
    "SITE": lambda fleet: fleet["sites"],
    "PART": lambda fleet: ["shared", *fleet["regions"], "links"],
}
VALUES = MappingProxyType({**_NAMES, "EXAMPLE": lambda _: example_names(), "[SCENARIO]": _scenarios})
"""By the word that stands for the value in help texts, the function that names the values in a fleet file."""
