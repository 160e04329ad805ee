"""The systemd units of a gateway's tunnels: the daemon charon, and the service that dials tunnels that are down."""

from pathlib import PurePosixPath

from vpn.sites.gateway import Gateway
from vpn.sites.pace import CALLER, WAITER
from vpn.sites.rendered import Places, RenderedFile
from vpn.sites.template import filled

# Without the ending `.service`.
SERVICE = "bedplate-ipsec-tunnels"
DIAL = f"{SERVICE}-dial"
_SYSTEMD = PurePosixPath("/etc/systemd/system")


def units_of(gateway: Gateway, places: Places) -> tuple[RenderedFile, ...]:
    """Return both units."""
    values = {
        "service": SERVICE,
        "dial": DIAL,
        "paces": " ".join(f"{each.first} {each.every}" for each in (CALLER, WAITER)),
        "source": gateway.address or "-",
        "places": places,
    }
    templates = {SERVICE: "charon.service.j2", DIAL: "dial.service.j2"}
    return tuple(RenderedFile(_SYSTEMD / f"{name}.service", filled(file, **values)) for name, file in templates.items())
