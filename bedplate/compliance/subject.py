"""Markers that limit compliance rules to the nodes that they apply to; the report counts the others."""

from collections.abc import Callable, Iterable

import pytest
from testinfra.host import Host
from testinfra.modules.file import File

from bedplate.plan.nodes import NodePlan, NodeRole
from roles.base import ManagedFile

MARKER = "applies_if"
installed = pytest.mark.installed
"""Marks a rule that the install stage alone keeps: a bake checks it before it makes an image."""


def applies_if(condition: Callable[[NodePlan], bool]) -> pytest.MarkDecorator:
    """Limit a rule to nodes whose plan meets a condition; as `pytestmark`, limit all rules of a file."""
    return pytest.MarkDecorator(pytest.Mark(MARKER, (condition,), {}, _ispytest=True), _ispytest=True)


def applies_to(*duties: NodeRole) -> pytest.MarkDecorator:
    """Limit a rule to nodes that have one of these duties."""
    return applies_if(lambda node: not node.duties.isdisjoint(duties))


def is_container(host: Host) -> bool:
    """Return whether the node is a container, which shares the kernel, clock and swap of its host."""
    return bool(host.run("systemd-detect-virt --quiet --container").succeeded)


def differing_files(host: Host, files: Iterable[ManagedFile]) -> list[str]:
    """Return the files that are missing, or have another text, mode or owner."""
    found = ((host.file(file.path), file) for file in files)
    return [file.path for actual, file in found if not actual.is_file or not _is_equal(actual, file)]


def _is_equal(actual: File, file: ManagedFile) -> bool:
    return (actual.mode, actual.user, actual.content_string) == (int(file.mode, 8), "root", file.text)
