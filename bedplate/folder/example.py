"""An example of a fleet file with the operator's values in place of the example's. Comments and layout stay."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from pathlib import Path

from bedplate.catalog import Catalog
from bedplate.catalog.catalog import check_region
from bedplate.errors import InputError, nearest_fix

EXAMPLES = Path(__file__).parents[2] / "examples"
# A change of lab.yaml for `rehearse --changed`, not a fleet to start from.
_NOT_OFFERED = ("lab-grown",)

_REGION = re.compile(r"\b[a-z]{2}(?:-[a-z]+)+-\d(?=[a-z]?\b)")
_RESERVATION = re.compile(r"\bcr-[0-9a-f]{17}\b")
_GATEWAY = re.compile(r"(?<=public: )[0-9.]+")
_TOP_LEVEL = re.compile(r"^(name|account|domain): \S+", re.MULTILINE)
# Of the hours of a schedule.
_CLOCK = re.compile(r"(?<=zone: )[A-Z]\w+/\w+")
_TIME_ZONES = Path(__file__).with_name("templates") / "time_zones.txt"
_EMAIL_DOMAIN = "lab.example"
# Comments and reasons name this person, too.
_PERSON = "ada"
_PEOPLE = re.compile(r"^people:\n(?:[ #].*\n)+", re.MULTILINE)
_FLOW_RUNG = re.compile(r"^ *- \{[^\n]*\bcr-[0-9a-f]{17}\b[^\n]*\}[^\n]*\n", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Answers:
    """The operator's values. `region` is None for an example of several regions, whose regions stay.

    `gateway` is the public address of the example's site, `reservation` the id of a capacity reservation; None if
    the example has none.
    """

    name: str
    account: str
    owner: str
    domain: str
    person: str
    key: str
    region: str | None = None
    gateway: str | None = None
    reservation: str | None = None


def example_names() -> tuple[str, ...]:
    """Return the names of the examples to start from."""
    return tuple(sorted(file.stem for file in EXAMPLES.glob("*.yaml") if file.stem not in _NOT_OFFERED))


def read_example(name: str) -> str:
    """Return the text of an example. Raises InputError for an unknown name."""
    if name not in example_names():
        raise InputError(f"there is no example {name}", fix=nearest_fix(name, example_names()))
    return (EXAMPLES / f"{name}.yaml").read_text()


def example_questions(text: str) -> tuple[str, ...]:
    """Return the fields of Answers that the example requires, in order."""
    optional = {
        "region": len(example_regions(text)) == 1,
        "gateway": bool(_GATEWAY.search(text)),
        "reservation": bool(_RESERVATION.search(_FLOW_RUNG.sub("", text))),
    }
    return tuple(field.name for field in fields(Answers) if optional.get(field.name, True))


def example_regions(text: str) -> tuple[str, ...]:
    """Return the regions of an example, the home region first."""
    return tuple(dict.fromkeys(_REGION.findall(text)))


def fill_example(text: str, answers: Answers, catalog: Catalog) -> str:
    """Return the example with the operator's values. The checks of the fleet file judge the values.

    A rung with a capacity reservation is removed if no reservation is given. Raises InputError if the region is
    unknown or offers the example's types in too few zones.
    """
    # Functions as replacements: a backslash in a value of the operator has no meaning. The person comes first, because
    # other values may contain the name of the example's.
    text = re.sub(rf"\b{_PERSON}\b", lambda _: answers.person, text)
    if answers.reservation is None:
        text = _FLOW_RUNG.sub("", text)
    text = _RESERVATION.sub(lambda match: answers.reservation or match[0], text)
    if answers.region is not None:
        text = _move(text, answers.region, catalog)
    text = _GATEWAY.sub(lambda match: answers.gateway or match[0], text)
    text = re.sub(rf"[\w.-]+@{re.escape(_EMAIL_DOMAIN)}", lambda _: answers.owner, text)
    text = text.replace(f"{_EMAIL_DOMAIN}/", f"{answers.domain}/")
    values = {"name": answers.name, "account": f'"{answers.account}"', "domain": answers.domain}
    text = _TOP_LEVEL.sub(lambda match: f"{match[1]}: {values[match[1]]}", text)
    person = f'people:\n  {answers.person}: {{admin: true, keys: ["{answers.key}"]}}\n'
    return _PEOPLE.sub(lambda _: person, text)


def _move(text: str, region: str, catalog: Catalog) -> str:
    """Return the example in another region, with as many zones, which offer the types of its groups."""
    (old,) = example_regions(text)
    check_region(catalog, region)
    if region == old:
        return text
    old_zones = tuple(dict.fromkeys(re.findall(rf"\b{old}([a-z])\b", text)))
    zones = _zones_with(_types(text), region, catalog)
    if len(zones) < len(old_zones):
        raise InputError(
            f"{region} does not offer {' and '.join(_types(text))} in {len(old_zones)} zones",
            fix=f"write one of {', '.join(_offering(text, len(old_zones), catalog))}",
        )
    letters = dict(zip(old_zones, zones, strict=False))
    text = re.sub(rf"\b{old}([a-z])\b", lambda match: f"{region}{letters[match[1]]}", text)
    return _CLOCK.sub(time_zone(region), text.replace(old, region))


def time_zone(region: str) -> str:
    """Return the time zone of a region's city; UTC for a region that is newer than the list."""
    rows = (line.split() for line in _TIME_ZONES.read_text(encoding="ascii").splitlines())
    return dict(rows).get(region, "Etc/UTC")


def _types(text: str) -> tuple[str, ...]:
    """Return the first instance type of each group: the others are its substitutes."""
    return tuple(dict.fromkeys(re.findall(r"types: \[([\w.-]+)", text)))


def _zones_with(types: Iterable[str], region: str, catalog: Catalog) -> str:
    """Return the letters of the region's zones, first those that offer all types; none if no zone does."""
    offers = [set(catalog.offered(name, region)) for name in types]
    zones = catalog.regions[region].zones
    full = [zone for zone in zones if all(zone in offered for offered in offers)]
    rest = [zone for zone in zones if zone not in full]
    return "".join(zone.removeprefix(region) for zone in (*full, *rest)) if full else ""


def _offering(text: str, count: int, catalog: Catalog) -> Iterator[str]:
    return (name for name in catalog.regions if len(_zones_with(_types(text), name, catalog)) >= count)
