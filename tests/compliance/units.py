"""Units of systemd's that bedplate ships, as systemd itself runs them."""

from testinfra.host import Host


def altered(host: Host, *units: str) -> list[str]:
    """Return what makes these units do other than their files say: drop-ins, and files that systemd has not read."""
    named = " ".join("%s" for _ in units)
    told = host.check_output(f"systemctl show --property=Id,DropInPaths,NeedDaemonReload {named}", *units)
    good = {"DropInPaths=", "NeedDaemonReload=no", ""}
    return [line for line in told.splitlines() if line not in good and not line.startswith("Id=")]
