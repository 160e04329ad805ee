"""The images that Canonical publishes today, looked up region by region."""

from collections.abc import Iterable, Mapping
from itertools import chain

from bedplate.account.door import Door
from bedplate.account.regions import ask_regions, every_answer
from bedplate.errors import PartError
from bedplate.plan.images import IMAGE_ID, image_parameter


def newest_images(door: Door, places: Iterable[str]) -> Mapping[str, str]:
    """Return the image of each `region/architecture`; raises the first failure's error if any region gives none."""
    wanted = [place.split("/") for place in places]

    def ask(region: str) -> dict[str, str]:
        return {f"{region}/{arch}": _image(door, region, arch) for name, arch in wanted if name == region}

    answers = every_answer(ask_regions((region for region, _ in wanted), ask), "nothing was recorded")
    return dict(chain.from_iterable(images.items() for images in answers.values()))


def _image(door: Door, region: str, arch: str) -> str:
    name = image_parameter(arch)
    value: str = door.call("ssm", region, "get_parameter", Name=name)["Parameter"]["Value"]
    if not IMAGE_ID.fullmatch(value):
        raise PartError(f"{name} is no image id", fix="look at it: `aws ssm get-parameter --name ...`")
    return value
