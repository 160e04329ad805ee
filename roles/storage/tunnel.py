"""The TLS tunnel to an EFS file system: stunnel, which refuses any far end but EFS's own of that region.

amazon-efs-utils is in neither distribution's archive and wants a file system's id, which AWS gives; what it does for a
mount with TLS is this. Permissions are the file system's policy and the network's: no credentials of the node go in.
"""

from hashlib import sha256

from bedplate.plan.node import Mount
from roles.shipped import Shipped
from roles.storage.unit import Unit
from roles.template import rendered

FOLDER = "/etc/bedplate/efs"


def loopback(store: str) -> str:
    """Return the address of this machine on which a store's tunnel begins: by its name, so that no other moves it."""
    high, middle, low = sha256(store.encode()).digest()[:3]
    return f"127.{high or 1}.{middle}.{low % 254 + 1}"


def tunnel(mount: Mount) -> tuple[Shipped, Unit]:
    """Return the configuration of a mount's tunnel, and the unit that runs it."""
    path = f"{FOLDER}/{mount.store}.conf"
    # EFS proves itself by a certificate for every name below its region's.
    proof = f"{mount.store}.efs.{mount.region}.amazonaws.com"
    text = rendered("storage/stunnel.conf.j2", mount=mount, begins=loopback(mount.store), proof=proof)
    unit = rendered("storage/tunnel.service.j2", mount=mount, path=path)
    return Shipped(f"TLS to {mount.store}", path, text), Unit(
        f"Tunnel to {mount.store}", f"bedplate-efs-{mount.store}.service", unit
    )
