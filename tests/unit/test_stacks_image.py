"""Which image a pool's machines start from."""

import pytest

from bedplate.catalog import load_catalog
from bedplate.plan.images import architecture
from stacks.image import image_reference


@pytest.mark.parametrize(
    ("types", "arch"),
    [(("p5.48xlarge",), "x86_64"), (("m7g.large",), "arm64"), (("z99.large", "c7g.large"), "arm64"), ((), "x86_64")],
)
def test_the_first_type_that_is_known_tells_the_architecture(types: tuple[str, ...], arch: str) -> None:
    """A type newer than the catalogue does not decide where an older one can."""
    assert architecture(types, load_catalog()) == arch


def test_an_image_is_looked_up_when_a_machine_starts() -> None:
    """No id is written down that would be out of date, or another region's."""
    reference = image_reference("arm64")

    assert reference.startswith("resolve:ssm:/aws/service/canonical/ubuntu/server/24.04/")
    assert "/arm64/" in reference
