"""What an operator reads of a rule that is violated."""

import pytest

from tests.compliance.words import plain


@pytest.mark.parametrize(
    ("message", "told"),
    [
        ("assert False\n +  where False = <service chrony>.is_enabled", "chrony is not enabled"),
        ("assert not True\n +  where True = <socket tcp://111>.is_listening", "tcp://111 is listening"),
        ("assert False\n +  where False = <file /etc/motd>.exists", "/etc/motd is not there"),
        ("assert not True\n +  where True = <file /etc/hosts.equiv>.exists", "/etc/hosts.equiv is there"),
        ("assert False\n +  where False = exists('nvtop')\n +    where exists = .exists", "nvtop is not there"),
        ("grace has a password\nassert ['grace'] == []", "grace has a password\nassert ['grace'] == []"),
        ("assert 1\n +  where 1 = <built-in method x of y at 0x7>", "assert 1"),
    ],
    ids=["service", "socket", "file", "file too many", "program", "own words", "way"],
)
def test_what_was_asked_of_a_machine_becomes_a_sentence(message: str, told: str) -> None:
    """Pytest tells what Python compared; an operator is told what of the machine is otherwise."""
    assert plain(message) == told
