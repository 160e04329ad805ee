"""Host names that mean something else already."""

import pytest
from pydantic import TypeAdapter, ValidationError

from bedplate.spec.text import HostLabel

LABEL = TypeAdapter(HostLabel)


@pytest.mark.parametrize("word", ["localhost", "laptops"])
def test_a_name_that_is_taken_is_refused(word: str) -> None:
    """A machine of that name would hide what it stands for."""
    with pytest.raises(ValidationError, match=f"host name {word} is reserved"):
        LABEL.validate_python(word)


def test_a_name_beside_it_is_free() -> None:
    """Only the word itself is taken."""
    assert LABEL.validate_python("laptops-1") == "laptops-1"
