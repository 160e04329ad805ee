"""A text as codes for a camera, drawn with the terminal's own blocks: one, or several that a reader joins."""

from collections.abc import Iterator
from io import StringIO

import segno
from segno.encoder import DataOverflowError

# A code of this version (ISO/IEC 18004) is 105 modules wide: a terminal of 120 columns shows it whole.
_WIDEST = 22


def code_lines(text: str) -> Iterator[str]:
    """Yield the lines of each code; several are numbered, and belong together by Structured Append."""
    codes = _codes(text)
    for number, code in enumerate(codes, 1):
        if len(codes) > 1:
            yield f"{number} of {len(codes)}"
        drawn = StringIO()
        code.terminal(drawn, compact=True)
        yield from drawn.getvalue().splitlines()


def _codes(text: str) -> tuple[segno.QRCode, ...]:
    try:
        return (segno.make_qr(text, error="l", version=_WIDEST, boost_error=False),)
    except DataOverflowError:
        return tuple(segno.make_sequence(text, error="l", version=_WIDEST, boost_error=False))
