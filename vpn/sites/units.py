"""What systemd runs for a charon: the daemon, and what dials tunnels that do not stand."""

from pathlib import PurePosixPath

from vpn.sites.gateway import Charon, Gateway
from vpn.sites.pace import CALLER, WAITER
from vpn.sites.rendered import Places, RenderedFile
from vpn.sites.template import filled

_SYSTEMD = PurePosixPath("/etc/systemd/system")


def service_name(charon: Charon) -> str:
    """Return the unit of a charon, without its ending."""
    return f"bedplate-ipsec-{charon.name}"


def units_of(gateway: Gateway, charon: Charon, places: Places) -> tuple[RenderedFile, ...]:
    """Return the units of a charon."""
    service = service_name(charon)
    dial = f"{service}-dial"
    values = {
        "charon": charon,
        "service": service,
        "dial": dial,
        "paces": " ".join(f"{each.first} {each.every}" for each in (CALLER, WAITER)),
        "folder": places.folder(charon.name),
        "socket": places.socket(charon.name),
        "table": places.table(charon.name),
        "source": gateway.address or "-",
        "places": places,
    }
    templates = {
        f"{service}.service": "charon.service.j2",
        f"{dial}.service": "dial.service.j2",
    }
    return tuple(RenderedFile(_SYSTEMD / name, filled(file, **values)) for name, file in templates.items())
