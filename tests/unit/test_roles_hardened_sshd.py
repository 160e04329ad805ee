"""The settings of sshd."""

import pytest

from bedplate.plan.node import Duty
from roles.hardened.sshd import settings


def values(text: str) -> dict[str, str]:
    """Return the value of each keyword before the first Match; of one said twice, the first."""
    found: dict[str, str] = {}
    for line in text.partition("\nMatch ")[0].splitlines():
        keyword, _, value = line.partition(" ")
        if keyword and keyword != "#":
            found.setdefault(keyword.lower(), value)
    return found


@pytest.mark.parametrize(
    ("duty", "forwarding"),
    [
        (Duty.WORKBENCH, "local"),
        (Duty.TUNNELS, "local"),
        (Duty.LAPTOPS, "local"),
        (Duty.WORKER, "no"),
        (Duty.CONTROL, "no"),
        (Duty.FILES, "no"),
    ],
)
def test_only_machines_that_people_pass_through_forward(duty: Duty, forwarding: str) -> None:
    """A notebook on a workbench is reached by a forwarded port; a worker has none to reach."""
    assert values(settings(frozenset({duty})))["allowtcpforwarding"] == forwarding


def test_keys_lie_where_only_root_writes() -> None:
    """A key that a person adds to a home opens nothing; only the accounts of images keep theirs."""
    text = settings(frozenset())

    assert values(text)["authorizedkeysfile"] == "/etc/ssh/authorized_keys.d/%u"
    images, everybody = text.split("\nMatch ")[1:]
    assert images.splitlines()[:2] == [
        "User ubuntu,debian,admin",
        "    AuthorizedKeysFile /etc/ssh/authorized_keys.d/%u .ssh/authorized_keys",
    ]
    assert "AuthorizedKeysFile /etc/ssh/authorized_keys.d/%u\n" in everybody


def test_no_block_that_comes_after_says_otherwise() -> None:
    """Of blocks the first that concerns a session counts: ours repeats, for all, who gets in."""
    text = settings(frozenset())
    blocks = [line.split() for line in text.rpartition("\nMatch all\n")[2].splitlines()]

    assert {keyword.lower(): " ".join(value) for keyword, *value in blocks}.items() <= values(text).items()
    assert ["PermitRootLogin", "no"] in blocks


def test_no_algorithm_is_one_that_fell() -> None:
    """No SHA-1, no CBC, no NIST curve for the exchange of keys, no MAC before encryption."""
    found = values(settings(frozenset()))

    for keyword in ("kexalgorithms", "ciphers", "macs", "hostkeyalgorithms"):
        for name in found[keyword].split(","):
            assert not any(weak in name for weak in ("sha1", "cbc", "nistp", "group14", "md5", "ssh-rsa", "3des"))
    assert all(name.endswith("-etm@openssh.com") for name in found["macs"].split(","))
