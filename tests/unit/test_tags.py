"""Tags of the fleet file, such as a cost centre, are on every resource that AWS can tag."""

from pathlib import Path

import pytest

from bedplate.catalog import load_catalog
from bedplate.load.fleet import examine
from stacks.options import node_tags, stack_tags
from tests.testlab.fleets.variants import LAB_PLAN
from tests.testlab.rehearsal.programs import EXAMPLES, plan_of_text

TAGS = 'tags: {cost-center: "4711", "Project Team": "vision: NLP"}\n'
MINIMAL = (EXAMPLES / "minimal.yaml").read_text(encoding="utf-8")


def _faults(folder: Path, tags: str) -> list[str]:
    (folder / "fleet.yaml").write_text(f"{MINIMAL}\n{tags}\n", encoding="utf-8")
    return [f"{fault.code} {fault.key}" for fault in examine(folder / "fleet.yaml", load_catalog())]


def test_tags_reach_stacks_and_machines() -> None:
    """By the default tags of the provider, and in launch templates, which default tags do not reach."""
    plan = plan_of_text(MINIMAL + TAGS)
    own = {"cost-center": "4711", "Project Team": "vision: NLP"}

    assert own.items() <= stack_tags(plan, "shared").items()
    assert own.items() <= node_tags(plan, plan.pools[0]).items()
    assert set(stack_tags(LAB_PLAN, "shared")) == {"bedplate:fleet", "bedplate:stack", "owner"}


@pytest.mark.parametrize(
    "tags",
    [
        "{'aws:cost': a}",
        "{'AWS:cost': a}",
        "{'bedplate:fleet': other}",
        "{'kubernetes.io/cluster/x': owned}",
        "{Name: box}",
        "{owner: bob}",
        "{'cost!': a}",
        f"{{{'k' * 129}: a}}",
        f"{{team: {'v' * 257}}}",
        "{team: 'a;b'}",
    ],
)
def test_a_tag_that_aws_or_bedplate_reserves_is_refused(tmp_path: Path, tags: str) -> None:
    """So are keys of more than 128 characters, values of more than 256, and other characters."""
    assert [text for text in _faults(tmp_path, f"tags: {tags}") if text.startswith("E420 tags")]


def test_the_longest_tags_and_an_empty_value_are_valid(tmp_path: Path) -> None:
    """AWS takes them."""
    before = _faults(tmp_path, "")
    assert _faults(tmp_path, f"tags: {{{'k' * 128}: {'v' * 256}, billed: ''}}") == before


def test_too_many_tags_are_refused(tmp_path: Path) -> None:
    """A resource has at most 50, and bedplate's own need some of them."""
    many = ", ".join(f"key{number}: a" for number in range(36))
    assert [text for text in _faults(tmp_path, f"tags: {{{many}}}") if " tags" in text]
