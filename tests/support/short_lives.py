"""Keys that live for seconds where the product's live for hours, so that a run sees many of them renewed.

What lies between a renewal and the end of the old key stays long: the product has minutes, a tenth of few seconds
is nothing; a key would end while its successor is being made, and that would be no renewal.
"""

from tests.support.lab_gateway import Amend
from vpn.sites import pace
from vpn.sites.rendered import RenderedFile

_LIVES = 4


def short_lived(ike: int, child: int) -> Amend:
    """Return the change by which an IKE_SA and a tunnel's keys are renewed after so many seconds, or one earlier."""

    def amend(file: RenderedFile) -> str:
        text = file.text.replace(f"rekey_time = {pace.IKE_REKEY}s", _ikes(ike))
        return text.replace(f"rekey_time = {pace.CHILD_REKEY}s", _childs(child))

    return amend


def _ikes(seconds: int) -> str:
    return f"rekey_time = {seconds}s\n    rand_time = 1s\n    over_time = {_LIVES * seconds}s"


def _childs(seconds: int) -> str:
    return f"rekey_time = {seconds}s\n        rand_time = 1s\n        life_time = {_LIVES * seconds}s"
