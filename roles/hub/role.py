"""The role `hub`: nginx in front of the record and its files, and the program that checks and makes tokens."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from pyinfra.operations import server, systemd

from bedplate.plan.fleet import Accounts
from bedplate.plan.hub import HUB_FLEET, PROMETHEUS_PORT, HubPlan
from bedplate.programs.hub.__main__ import PEOPLE
from bedplate.programs.hub.messages import SETTINGS as RECIPIENTS
from bedplate.programs.hub.rules import FILES
from roles.base import (
    LIBRARY,
    UNITS,
    Changes,
    DiskSpace,
    ManagedFile,
    Role,
    changed,
    command_file,
    file_text,
    minute_timer,
    minute_units,
    program_files,
    render,
    unit_files,
)
from roles.hardened.logins import HUB_TOKEN_PROGRAM
from roles.system import create_daemon_account, install_packages, start_units
from roles.tokens.role import client_file

ALERTS, BACKUP, FLEET = "bedplate-hub-alerts", "bedplate-hub-backup", "bedplate-hub-fleet"
SWEEP = "bedplate-hub-sweep"
PROGRAM, SERVICE, SOCKET = "/usr/local/sbin/bedplate-hub", "bedplate-hub.service", "bedplate-hub.socket"
KEYS, NGINX = "bedplate-hub-keys.service", "nginx.service"
SETTINGS = "/etc/bedplate/hub-backup"
SITE, _LIMITS = "/etc/nginx/nginx.conf", f"{UNITS}/{NGINX}.d/bedplate.conf"


@dataclass(frozen=True, slots=True)
class Hub(Role):
    """The hub under this name in the fleet's domain, the names of people by user id, and the settings of backups.

    `published` is the text of `fleet.json`; it is empty in a region, where a program writes that file every minute.
    """

    host: str
    people: Mapping[int, str]
    backup: Mapping[str, str] = field(default_factory=dict)
    published: str = ""
    messages: Mapping[str, Any] = field(default_factory=dict)
    name: ClassVar[str] = "hub"
    space: ClassVar[DiskSpace] = DiskSpace(programs=60, state=2)

    def install(self) -> None:
        """Install nginx, and create the account of the check."""
        install_packages("Install nginx and its tools", ("nginx", "logrotate", "openssl", "curl", "rclone"))
        server.group(name="Create the group of the record", group="mlflow", system=True)
        server.user(name="Let nginx reach the record", user="www-data", groups=["mlflow"], append=True)
        create_daemon_account("Create the account of the check", "bedplate-hub")

    def files(self) -> Iterator[ManagedFile]:
        """Yield every file of the hub; none holds a secret."""
        yield from program_files("hub", PROGRAM)
        yield command_file(f"{LIBRARY}/hub-keys", "hub/hub-keys")
        yield ManagedFile(
            f"Write {KEYS}", f"{UNITS}/{KEYS}", render("hub/bedplate-hub-keys.service.j2", host=self.host)
        )
        yield from unit_files("hub", SERVICE, SOCKET, f"{BACKUP}.service", f"{BACKUP}.timer", f"{SWEEP}.service")
        yield from unit_files("hub", f"{ALERTS}.service", f"{ALERTS}.socket")
        yield minute_timer(SWEEP, "end lost runs, and send messages about runs")
        if self.published:
            yield ManagedFile("Publish the fleet", HUB_FLEET, self.published)
        else:
            yield from minute_units(FLEET, "bedplate.machine.fleet", "publish the fleet")
        yield command_file(f"{LIBRARY}/hub-backup", "hub/hub-backup")
        settings = "".join(f"{name}={value}\n" for name, value in self.backup.items())
        yield ManagedFile("Write where backups go", SETTINGS, settings)
        yield ManagedFile("Write who is a person", str(PEOPLE), "".join(f"{i} {n}\n" for i, n in self.people.items()))
        yield ManagedFile("Write whom messages reach", str(RECIPIENTS), json.dumps(self.messages, sort_keys=True))
        yield client_file(HUB_TOKEN_PROGRAM, "/run/bedplate-hub/mint", takes_scope=True)
        yield ManagedFile("Configure nginx", SITE, self._nginx())
        yield ManagedFile("Limit nginx to its files", _LIMITS, file_text("hub/nginx.conf"))

    def _nginx(self) -> str:
        return render("hub/nginx.conf.j2", host=self.host, files=FILES, prometheus=PROMETHEUS_PORT)

    def activate(self, changes: Changes) -> None:
        """Start the units, and restart those whose files have changed."""
        start_units({"Check tokens": SOCKET, "Make keys, and check tokens": SERVICE, "Serve the hub": NGINX})
        start_units({"Take alerts": f"{ALERTS}.socket"})
        # It ends when nothing waits.
        start_units({"Send alerts that wait": f"{ALERTS}.service"}, runs=False)
        start_units({"Back up every night": f"{BACKUP}.timer", "End lost runs every minute": f"{SWEEP}.timer"})
        if not self.published:
            start_units({"Publish the fleet every minute": f"{FLEET}.timer"})
        for unit, files in (
            (SERVICE, (PROGRAM, f"{UNITS}/{SERVICE}")),
            (NGINX, (SITE, _LIMITS)),
            (f"{ALERTS}.service", (PROGRAM, f"{UNITS}/{ALERTS}.service")),
        ):
            systemd.service(name=f"Restart {unit}", service=unit, restarted=True, _if=changed(changes, *files))


def hub_role(hub: HubPlan, accounts: Accounts) -> Hub:
    """Return the role of the hub's machine."""
    people = {person.uid: person.name for person in accounts.people}
    published = "" if hub.region else json.dumps(hub.published, sort_keys=True)
    return Hub(hub.host, people, _backup(hub), published, hub.messages)


def _backup(hub: HubPlan) -> Mapping[str, str]:
    """Return the name of the hub's backups, the folder of rclone for them, and what is saved beside the records.

    A folder of a site is open to the administrators of its clients, so keys are in the bucket only.
    """
    settings = {"NODE": hub.node, "TARGET": hub.backup.mount if hub.backup else "", "WITH": "(tokens)"}
    if hub.bucket:
        options = f"provider=AWS,env_auth=true,region={hub.bucket.region},no_check_bucket=true"
        settings |= {"TARGET": f":s3,{options}:{hub.bucket.name}", "WITH": "(keys tokens ssh)"}
    return settings
