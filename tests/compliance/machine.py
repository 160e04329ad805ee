"""What kind of machine is looked at, as it tells itself."""

from testinfra.host import Host


def is_contained(host: Host) -> bool:
    """Tell whether it is a container, whose kernel, clock and swap are its host's."""
    return bool(host.run("systemd-detect-virt --quiet --container").succeeded)
