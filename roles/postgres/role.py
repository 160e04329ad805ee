"""The role `postgres`: PostgreSQL of the distribution, with its data on the hub's volume and no network.

The program `database` makes the cluster before each start: the volume may be new, known, or have an older version's.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from pyinfra.context import host
from pyinfra.facts.server import LinuxDistribution
from pyinfra.operations import systemd

from bedplate.errors import InputError
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
    put_files,
    render,
)
from roles.system import install_packages, start_units

# Source: packages.debian.org and packages.ubuntu.com, package postgresql, 2026-11-27.
MAJORS = {("Debian", 12): 15, ("Debian", 13): 17, ("Ubuntu", 24): 16}
_LIMITS = "postgresql@.service.d/70-bedplate.conf"


@dataclass(frozen=True, slots=True)
class Postgres(Role):
    """A hub with PostgreSQL; `has_volume`: its data is on a volume, and never below an empty mount point."""

    has_volume: bool
    name: ClassVar[str] = "postgres"
    space: ClassVar[DiskSpace] = DiskSpace(programs=270, state=90, temporary=8)

    def install(self) -> None:
        """Install PostgreSQL without the cluster of its package, which would be on the root disk."""
        path = "/etc/postgresql-common/createcluster.d/bedplate.conf"
        put_files(ManagedFile("Create no cluster by the package", path, "create_main_cluster = false\n"))
        install_packages("Install PostgreSQL", ("postgresql",))

    def files(self) -> Iterator[ManagedFile]:
        """Yield the settings, the program that makes the cluster, and the limits of its unit."""
        for name in ("postgresql.conf", "pg_hba.conf"):
            yield ManagedFile(f"Write {name}", f"/etc/bedplate/{name}", file_text(f"postgres/{name}"))
        yield command_file(f"{LIBRARY}/database", "postgres/database")
        limits = render("postgres/postgresql.service.j2", has_volume=self.has_volume)
        yield ManagedFile("Write the limits of PostgreSQL", f"{UNITS}/{_LIMITS}", limits)

    def activate(self, changes: Changes) -> None:
        """Start PostgreSQL, which first makes its cluster, and restart it after a change."""
        system = host.get_fact(LinuxDistribution)
        major = MAJORS.get((str(system["name"]), int(system["major"] or 0)))
        if major is None:
            raise InputError(f"the hub cannot run {system['name']} {system['major']}", fix="use ubuntu-24.04")
        service = f"postgresql@{major}-main.service"
        systemd.service(name="Restart PostgreSQL", service=service, restarted=True, _if=changed(changes))
        start_units({"Start PostgreSQL": service})
