"""What PAM asks of somebody who wants to become another."""

import pytest

from roles.hardened.pam import Rule, admits, rules, with_auth, with_generated_auth
from tests.support.hardened import COMMON_AUTH

WHEEL = "auth required pam_wheel.so use_uid group=sugroup\n"
SU = f"auth sufficient pam_rootok.so\n{WHEEL}session required pam_env.so\n@include common-auth\n"
TEXTS = {"su": SU, "su-l": "auth include su\n", "common-auth": COMMON_AUTH}
PERMIT = "auth sufficient pam_permit.so\n"


@pytest.mark.parametrize("service", TEXTS)
def test_who_knows_nothing_does_not_get_through(service: str) -> None:
    """As both distributions and the role write these files."""
    assert not admits(service, TEXTS)


@pytest.mark.parametrize(
    "line",
    [
        "auth sufficient pam_permit.so",
        "-auth sufficient pam_permit.so",
        "AUTH Sufficient pam_permit.so",
        "auth sufficient \\\n  pam_permit.so",
        "auth [success=done default=ignore] pam_exec.so /bin/true",
        "auth sufficient pam_succeed_if.so user ingroup users",
        "auth sufficient /tmp/pam_unix.so",
        "auth sufficient pam_wheel.so trust group=users",
        "auth include mine",
        "@include mine",
    ],
)
def test_a_line_before_ours_that_lets_anybody_pass_is_seen(line: str) -> None:
    """However it is written, in the service itself or in what it includes."""
    mine = {"mine": PERMIT}

    assert admits("su", {**TEXTS, **mine, "su": f"{line}\n{SU}"})
    assert admits("su-l", {**TEXTS, **mine, "su": f"{line}\n{SU}"})
    assert admits("common-auth", {**TEXTS, **mine, "common-auth": f"{line}\n{COMMON_AUTH}"})


def test_what_was_refused_stays_so_unless_it_is_forgotten() -> None:
    """A module that must pass and did not is not made good by one that comes after; a reset makes it good."""
    refused = "auth required pam_deny.so\n"

    assert not admits("x", {"x": refused + PERMIT})
    assert not admits("x", {"x": "auth requisite pam_deny.so\n" + PERMIT})
    assert admits("x", {"x": refused + "auth [default=reset] pam_env.so\n" + PERMIT})


def test_a_jump_leaves_lines_out() -> None:
    """As pam-auth-update writes them: who is known jumps over what refuses everybody."""
    assert admits("x", {"x": "auth [success=1 default=ignore] pam_env.so\nauth requisite pam_deny.so\n" + PERMIT})
    assert not admits("x", {"x": "auth [success=1 default=ignore] pam_unix.so\nauth requisite pam_deny.so\n" + PERMIT})


def test_nothing_and_what_includes_itself_admit_nobody() -> None:
    """PAM refuses where nothing says yes."""
    assert not admits("x", {})
    assert not admits("x", {"x": "@include x\nsession required pam_permit.so\n"})
    assert [*rules("x", {"x": "# auth sufficient pam_permit.so\nauth required pam_env.so # why\n"})] == [
        Rule("required", "pam_env.so", "")
    ]


def test_the_auth_part_of_a_service_is_ours() -> None:
    """Strange lines go, ours come in their order, and all else stays; a second time changes nothing."""
    wanted = ("auth sufficient pam_rootok.so", WHEEL.strip())
    text = f"# PAM\nauth sufficient pam_permit.so\n{SU}@include mine\n"

    once = with_auth(text, wanted)

    assert once == f"# PAM\n{SU}"
    assert with_auth(once, wanted) == once
    assert with_auth(SU.replace("auth ", "auth\t\t"), wanted) == SU.replace("auth ", "auth\t\t")


def test_common_auth_has_what_is_generated_alone() -> None:
    """pam-auth-update keeps what stands outside its own part."""
    assert with_generated_auth(f"{PERMIT}# why\n{COMMON_AUTH}{PERMIT}") == f"# why\n{COMMON_AUTH}"
    assert with_generated_auth(COMMON_AUTH) == COMMON_AUTH
