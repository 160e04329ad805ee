"""What PAM does with passwords at a console and of sudo: counts failures, refuses weak and old ones.

Goes through pam-auth-update, as the distribution's own profiles do, so that other packages' profiles stay.
"""

from collections.abc import Iterable

from pyinfra.api.facts import FactBase
from pyinfra.context import host
from pyinfra.operations import server
from pyinfra.operations.util import any_changed

from roles.hardened.logins import SU_GROUP
from roles.hardened.pam import COMMON, admits, with_generated_auth
from roles.shipped import Shipped, ship
from roles.template import text_of
from roles.texts import Texts

_AUTH = f"/etc/pam.d/{COMMON}"
_PROFILES = ("faillock", "faillock-notify", "pwhistory")


class Guarded(FactBase[bool]):
    """Whether PAM counts failures and remembers passwords, and the group that may not be joined is there."""

    default = bool

    def command(self) -> str:
        """Look for both modules and for the group."""
        modules = "grep -q pam_faillock /etc/pam.d/common-auth && grep -q pam_pwhistory /etc/pam.d/common-password"
        return f"{modules} && getent group {SU_GROUP} >/dev/null && echo yes || :"

    def process(self, output: Iterable[str]) -> bool:
        """Read the answer."""
        return "yes" in list(output)


def guard() -> None:
    """Declare that passwords are guarded."""
    _take_profiles()
    _ask_all()


def _take_profiles() -> None:
    profiles = ship(
        *(
            Shipped(f"PAM: {each}", f"/usr/share/pam-configs/bedplate-{each}", text_of(f"hardened/pam-{each}"))
            for each in _PROFILES
        )
    )
    answer = any_changed(*profiles) if host.get_fact(Guarded) else (lambda: True)
    server.shell(
        name="PAM guards passwords",
        commands=[
            f"getent group {SU_GROUP} >/dev/null || groupadd --system {SU_GROUP}",
            "DEBIAN_FRONTEND=noninteractive pam-auth-update --package",
        ],
        _if=answer,
    )


def _ask_all() -> None:
    """Undo what lets somebody through who knows nothing."""
    texts = host.get_fact(Texts, paths=(_AUTH,))
    if admits(COMMON, {COMMON: with_generated_auth(texts.get(_AUTH, ""))}):
        # It keeps a part that somebody changed otherwise.
        asks = "DEBIAN_FRONTEND=noninteractive pam-auth-update --package --force"
        server.shell(name="PAM asks who somebody is", commands=[asks])
