"""Finds the name of AWS that a misspelt region, zone or instance type stands for."""

import re

from bedplate.catalog import Catalog
from bedplate.catalog.nearest import nearest
from bedplate.checks.context import one_of
from bedplate.load.yaml import Node

_MOST_TYPES = 6


def aws_name_fix(noun: str, word: str, path: tuple[str | int, ...], tree: Node, catalog: Catalog) -> str:
    """Return the fix for a word that is not in AWS's form; empty for other nouns."""
    if noun == "AWS region name":
        return _region_fix(word, path, tree, catalog)
    if noun == "zone name":
        zones = region_zones(path, tree, catalog)
        letter = [zone for zone in zones if zone.endswith(word.lower()) and len(word) == 1]
        return f"write {letter[0]}" if letter else one_of(zones)
    return _type_fix(word.lower(), catalog) if noun == "instance type" else ""


def _region_fix(word: str, path: tuple[str | int, ...], tree: Node, catalog: Catalog) -> str:
    key = re.sub(r"[ _]", "-", word.lower())
    regions = tree.child("regions")
    declared = [name for name in regions.names if isinstance(name, str)] if regions and path[0] != "regions" else []
    names = declared or [name for name, facts in catalog.regions.items() if not facts.opt_in]
    near = next((name for name in names if key.startswith(name)), None) or nearest(key, [*names, *catalog.regions])
    return f"write {near}" if near else one_of(names)


def region_zones(path: tuple[str | int, ...], tree: Node, catalog: Catalog) -> tuple[str, ...]:
    """Return the zones of the region whose key, or whose rung, contains the path."""
    if path[0] == "regions":
        region: object = path[1]
    else:
        rung = tree
        for part in path[:-1]:
            rung = rung.child(part) or rung
        node = rung.child("region")
        region = node.value if node else ""
    facts = catalog.regions.get(str(region))
    return tuple(sorted(facts.zones)) if facts else ()


def _type_fix(word: str, catalog: Catalog) -> str:
    """Return the type without a service's prefix, or the types of a family or of a GPU, or the nearest type."""
    name = re.sub(r"^(ml|db|cache)\.", "", word.replace("_", ".").replace(" ", ""))
    types = catalog.types.values()
    if name in catalog.types:
        return f"write {name}"
    family = sorted((facts for facts in types if facts.name.startswith(f"{name}.")), key=lambda facts: facts.vcpus)
    with_gpu = sorted((facts for facts in types if facts.gpu and facts.gpu.name == name), key=lambda facts: facts.name)
    if names := [facts.name for facts in family or with_gpu][:_MOST_TYPES]:
        return f"write {'one of ' if names[1:] else ''}{', '.join(names)}"
    near = nearest(name, [other for other in catalog.types if other[0] == name[:1]])
    return f"write {near}" if near else ""
