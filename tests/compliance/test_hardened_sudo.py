"""Every node: that sudo tells of whoever becomes another by it."""

import json

from testinfra.host import Host

from tests.compliance.sudo import hidden

# A configuration of one's own may leave out what was asked for.
_READ = "cvtsudoers -c /dev/null -f json /etc/sudoers"
_PLUGGED = r"grep -isE '^\s*(Plugin|Path\s+plugin_dir)\s' /etc/sudo.conf || true"


def test_sudo_tells_who_becomes_another(host: Host) -> None:
    """In its log and in the journal, allowed or refused, at a terminal of its own, whoever it is, and for whatever."""
    assert host.run("visudo --check --quiet").succeeded
    found = hidden(json.loads(host.check_output(_READ)))
    assert not found, f"somebody is not told of: {'; '.join(found)}"


def test_sudo_is_the_distribution_s(host: Host) -> None:
    """No plugin of somebody's own decides in its place, or reads other rules than those in /etc."""
    found = host.check_output(_PLUGGED)
    assert not found, f"/etc/sudo.conf has another decide: {found}"
