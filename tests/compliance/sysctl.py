"""Settings of the kernel that are otherwise than wanted: now, where the machine may set them, or at the next boot."""

from collections.abc import Mapping

from testinfra.host import Host

from roles.sysctl import Settable, otherwise
from tests.compliance.next_boot import at_the_next_boot


def amiss(host: Host, wanted: Mapping[str, str]) -> list[str]:
    """Return in words what is otherwise; a container leaves most to its host, as the role does."""
    asked = Settable()
    found = asked.process(host.check_output(str(asked.command(tuple(wanted)))).splitlines())
    now = [f"{key} = {value}" for key, value in otherwise(found, wanted).items()]
    return [*now, *at_the_next_boot(host, wanted)]
