"""Blocks, addresses and sizes are read in canonical form only."""

from ipaddress import IPv4Address, IPv4Network

import pytest
from pydantic_core import PydanticCustomError

from bedplate.spec.address import check_address, check_block, check_prefix

BLOCK = "write four numbers and a size, as in 10.64.0.0/10"


@pytest.mark.parametrize(
    ("value", "code", "fix"),
    [
        ("10.0.0.1/16", "E212", "write 10.0.0.0/16"),
        ("10.0.0.0", "E211", "write the size after it, as in 10.64.0.0/10"),
        ("10.0.0.0/255.255.0.0", "E213", "write 10.0.0.0/16"),
        ("10.0.0.0/0.0.255.255", "E213", "write 10.0.0.0/16"),
        ("10.0.0.0/08", "E213", "write 10.0.0.0/8"),
        ("010.0.0.0/8", "E213", "write 10.0.0.0/8"),
        (" 10.0.0.0/8", "E213", BLOCK),
        ("10.0.0.0/8\n", "E213", BLOCK),
        ("\uff11\uff10.0.0.0/8", "E213", BLOCK),
        ("10.0.0.0/33", "E210", BLOCK),
        ("10.0.0/8", "E210", BLOCK),
        (167772160, "E210", BLOCK),
        (True, "E210", BLOCK),
        (b"\n\0\0\0", "E210", BLOCK),
        ("fd00::/8", "E214", BLOCK),
        ("::ffff:10.0.0.0/104", "E214", BLOCK),
    ],
)
def test_a_block_in_any_other_form_is_refused(value: object, code: str, fix: str) -> None:
    """Python takes most of these for a block; the fix proposes the canonical one where one can be meant."""
    with pytest.raises(PydanticCustomError) as refused:
        check_block(value)

    assert refused.value.type == code
    assert refused.value.context is not None
    assert refused.value.context["fix"] == fix


def test_canonical_forms_are_read() -> None:
    """A block, an address and a size come out as they were written."""
    assert check_block("10.64.0.0/10") == IPv4Network("10.64.0.0/10")
    assert check_address("192.168.40.1") == IPv4Address("192.168.40.1")
    assert check_prefix("/22") == 22


@pytest.mark.parametrize("value", ["1.2.3", "1.2.3.4/32", "1.2.3.256", "1.2.3.04", "1.2.3.4 ", "::1", 16909060])
def test_anything_but_four_numbers_is_no_address(value: object) -> None:
    """There is one way to write an address."""
    with pytest.raises(PydanticCustomError):
        check_address(value)


@pytest.mark.parametrize("value", ["22", 22, "/33", "/022", "/-1", "/\u0662", "/2 2", None])
def test_anything_but_a_slash_and_a_number_is_no_size(value: object) -> None:
    """A bare number would read as a count of addresses."""
    with pytest.raises(PydanticCustomError):
        check_prefix(value)
