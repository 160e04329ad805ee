"""What a model refuses, it refuses under a rule of the catalogue."""

import re
from pathlib import Path

from bedplate import spec
from bedplate.checks.rules import RULES

SOURCES = sorted(Path(spec.__file__).parent.glob("*.py"))


def test_every_code_of_a_model_is_a_rule() -> None:
    """A refusal without a rule would have no name, no level and no reason."""
    codes = {code for path in SOURCES for code in re.findall(r'"([EW]\d{3})"', path.read_text(encoding="utf-8"))}

    assert codes
    assert codes <= set(RULES)
