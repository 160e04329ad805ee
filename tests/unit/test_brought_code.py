"""What is brought to a machine with a kernel of its own, where nothing is installed beside Python."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.virtual.code import bring_code

# Without this environment's packages, and without this project's folder.
_ALONE = (sys.executable, "-I", "-S", "-c", "import sys; sys.path.insert(0, sys.argv[1]); __import__(sys.argv[2])")


@pytest.fixture(scope="module")
def brought(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a folder with the code."""
    folder = tmp_path_factory.mktemp("brought")
    bring_code(folder)
    return folder


@pytest.mark.parametrize("story", ["kernel_site", "kernel_pair", "kernel_bounds"])
def test_a_story_needs_nothing_that_is_not_brought(story: str, brought: Path) -> None:
    """It starts there: otherwise it would be known only after the minutes that such a machine takes to boot."""
    done = subprocess.run(
        [*_ALONE, str(brought), f"tests.support.{story}"], capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stderr[-600:]
