"""How much the journal keeps, and what people and services may lock and open."""

from roles.shipped import Shipped
from roles.template import text_of

JOURNALD = "systemd-journald.service"
JOURNAL = Shipped(
    "Limits of the journal", "/etc/systemd/journald.conf.d/60-bedplate.conf", text_of("baseline/journald.conf")
)
LIMITS = Shipped("Limits of sessions", "/etc/security/limits.d/60-bedplate.conf", text_of("baseline/limits.conf"))
MANAGER = Shipped("Limits of services", "/etc/systemd/system.conf.d/60-bedplate.conf", text_of("baseline/system.conf"))
