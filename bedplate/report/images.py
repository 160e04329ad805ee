"""Reports of the commands under `image`."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from typing import TYPE_CHECKING

from bedplate.report.bundle import SHORT
from bedplate.report.columns import age_since, aligned, changed_rows
from images.steps import BASE, BUNDLE, COMMIT, VERSIONS, Recipe

if TYPE_CHECKING:
    from images.published import (
        FleetImage,  # it imports boto3
        Rollout,
    )


@dataclass(frozen=True, slots=True)
class PlannedImage:
    """A kind, its recipe, the regions that need the image, and those that have it finished, with its id."""

    recipe: Recipe
    regions: tuple[str, ...]
    present: Mapping[str, str]
    in_use: Mapping[str, str]
    """The recorded image of the kind, by region."""
    withdrawn: bool = False

    @property
    def state(self) -> str:
        """The steps that `image bake` would run."""
        if self.withdrawn:
            return "withdrawn"
        if not self.present:
            return "bake"
        missing = [region for region in self.regions if region not in self.present]
        if missing:
            return f"copy to {', '.join(missing)}"
        current = all(self.in_use.get(region) == self.present[region] for region in self.regions)
        return "unchanged" if current else "record"


def planned_lines(images: Iterable[PlannedImage]) -> Iterator[str]:
    """Yield a line for each kind, and below it what its image is made of."""
    for image in images:
        recipe = image.recipe
        yield f"{recipe.kind.name}: {image.state}"
        yield f"  {recipe.name} in {', '.join(image.regions)}"
        yield f"  base {recipe.base} · bundle {recipe.bundle[:SHORT]} · {' '.join(recipe.versions)}"


def planned_document(images: Iterable[PlannedImage]) -> dict[str, object]:
    """Return the same as a document."""
    return {
        image.recipe.kind.name: {
            "name": image.recipe.name,
            "state": image.state,
            "regions": list(image.regions),
            "present": dict(image.present),
            "base": image.recipe.base,
            "bundle": image.recipe.bundle,
            "versions": list(image.recipe.versions),
        }
        for image in images
    }


def by_name(images: Iterable["FleetImage"]) -> Mapping[str, tuple["FleetImage", ...]]:
    """Return the images of all regions by name, the newest name first."""
    ordered = sorted(images, key=lambda image: image.name)
    groups = {name: tuple(group) for name, group in groupby(ordered, key=lambda image: image.name)}
    return dict(sorted(groups.items(), key=lambda item: min(image.created for image in item[1]), reverse=True))


def image_lines(images: Iterable["FleetImage"], used: frozenset[str], now: datetime) -> Iterator[str]:
    """Yield a line for each image: name, age, size, regions and state."""
    rows = [("name", "age", "size", "regions", "state")]
    for name, copies in by_name(images).items():
        created = datetime.fromisoformat(min(copy.created for copy in copies))
        regions = ", ".join(sorted(copy.region for copy in copies))
        rows.append((name, age_since(created, now), f"{copies[0].gib} GiB", regions, _state(copies, used)))
    yield from aligned(rows) if rows[1:] else ("no images",)


def _state(copies: Sequence["FleetImage"], used: frozenset[str]) -> str:
    users = [copy.region for copy in copies if copy.id in used]
    parts = (
        f"in use in {', '.join(sorted(users))}" if users else "",
        "withdrawn" if any(copy.withdrawn for copy in copies) else "",
        "protected" if any(copy.protected for copy in copies) else "",
        "" if all(copy.finished for copy in copies) else "unfinished",
    )
    return ", ".join(filter(None, parts)) or "-"


def rollout_lines(rollouts: Iterable["Rollout"]) -> Iterator[str]:
    """Yield a line for each roll-out that has not replaced all machines."""
    for rollout in rollouts:
        line = f"{rollout.pool}: roll-out {rollout.status}, {rollout.percent} % replaced"
        reason = f": {rollout.reason}" if rollout.reason else ""
        if rollout.has_failed:
            yield f"{line}{reason}; `bedplate image rollback KIND` returns to the previous image"
        elif not rollout.has_ended:
            yield f"{line}{reason}"


def image_documents(images: Iterable["FleetImage"], used: frozenset[str], bucket: str) -> list[dict[str, object]]:
    """Return the images of all regions as documents; `bucket` has their bills of materials."""
    return [
        {
            "name": name,
            "kind": copies[0].kind,
            "created": min(copy.created for copy in copies),
            "gib": copies[0].gib,
            "regions": {copy.region: copy.id for copy in copies},
            "in_use": sorted(copy.region for copy in copies if copy.id in used),
            "bill_of_materials": f"s3://{bucket}/images/{name}.cdx.json",
            "withdrawn": any(copy.withdrawn for copy in copies),
            "finished": all(copy.finished for copy in copies),
        }
        for name, copies in by_name(images).items()
    ]


_INPUTS = {"base image": BASE, "bundle": BUNDLE, "commit": COMMIT}


def difference_lines(first: "FleetImage", second: "FleetImage") -> Iterator[str]:
    """Yield the inputs in which two images differ."""
    inputs = ({name: image.tags.get(tag, "-") for name, tag in _INPUTS.items()} for image in (first, second))
    versions = (dict(word.split("=", 1) for word in image.tags.get(VERSIONS, "").split()) for image in (first, second))
    yield from aligned([*changed_rows(*inputs), *changed_rows(*versions)]) or ("same inputs",)


def package_lines(before: Mapping[str, str] | None, after: Mapping[str, str] | None) -> Iterator[str]:
    """Yield the packages whose versions differ between two images; None for an image without a bill of materials."""
    if before is None or after is None:
        yield "packages: unknown: an image has no bill of materials"
        return
    rows = changed_rows(before, after)
    yield from aligned([("package", "A", "B"), *rows]) if rows else ("packages: no differences",)
