"""Languages and the zone of time: logs of every node sort together, and what a laptop brings along is understood."""

from pyinfra.operations import files, server
from pyinfra.operations.util import any_changed

from roles.base import Changes
from roles.shipped import Shipped, ship

# What macOS and most distributions send with an SSH session; C.UTF-8 needs no making.
_KNOWN = "en_US.UTF-8"


def speak() -> Changes:
    """Declare messages in plain English, the most usual locale of laptops beside it, and times in UTC."""
    made = ship(Shipped("Locales", "/etc/locale.gen", f"{_KNOWN} UTF-8\n"))
    server.shell(name="Make the locales", commands=["locale-gen"], _if=any_changed(*made))
    server.timezone(name="Times in UTC", timezone="Etc/UTC")
    language = ship(Shipped("Language", "/etc/locale.conf", "LANG=C.UTF-8\n"))
    # PAM reads this path, systemd 253 and later the file above. Ubuntu 24.04 has this link; Debian 12 has a file.
    link = files.link(
        name="Language of sessions", path="/etc/default/locale", target="../locale.conf", force=True, force_backup=False
    )
    return (*made, *language, link)
