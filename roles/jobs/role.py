"""The role `jobs`: what runs of people need on a machine, besides the workbench: leases, lingering and folders."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from pyinfra.operations import server

from bedplate.plan.fleet import Account
from roles.base import LIBRARY, Changes, Disruption, ManagedFile, Role, changed, file_text, program_files, unit_files
from roles.people.accounts import LINGER
from roles.system import install_packages, start_units

UNIT = "bedplate-gpus.service"
USER_UNITS, ENDS = "/etc/systemd/user", "bedplate-runs.service"
RUNS = "/var/cache/bedplate/runs"
TMPFILES = "/etc/tmpfiles.d/bedplate-jobs.conf"


@dataclass(frozen=True, slots=True)
class Jobs(Role):
    """A machine on which these people run jobs; `has_gpus` that they lease."""

    people: tuple[Account, ...]
    has_gpus: bool
    name: ClassVar[str] = "jobs"
    disruption: ClassVar[Disruption] = Disruption.NONE

    def install(self) -> None:
        """Install the interpreter of the programs."""
        install_packages("Install packages of jobs", ("python3",))

    def files(self) -> Iterator[ManagedFile]:
        """Yield the programs, the folders of runs, and what lets units of people run without a login."""
        for program in ("gpus", "agent"):
            yield from program_files(program, f"/usr/local/bin/bedplate-{program}")
        yield ManagedFile("Write the folders of runs", TMPFILES, "".join(self._folders()))
        yield ManagedFile(f"Write {ENDS}", f"{USER_UNITS}/{ENDS}", file_text(f"jobs/{ENDS}"))
        wish = f"[Unit]\nWants={ENDS}\n"
        yield ManagedFile("Write ends at boot", f"{USER_UNITS}/default.target.d/bedplate.conf", wish)
        for person in self.people:
            yield ManagedFile(f"Let units of {person.name} outlive logins", f"{LINGER}/{person.name}", "")
        if self.has_gpus:
            yield from unit_files("jobs", UNIT)
            yield ManagedFile("Show free GPUs at login", "/etc/profile.d/bedplate-gpus.sh", file_text("jobs/login.sh"))

    def _folders(self) -> Iterator[str]:
        """Yield rows of tmpfiles.d(5): nobody can create the folder of another person, and old runs are removed."""
        yield f"d {RUNS} 0755 root root -\n"
        for person in self.people:
            yield f"d {RUNS}/{person.uid} 0700 {person.uid} {person.uid} 30d\n"
            yield f"e /scratch/{person.name}/runs - - - 30d\n"

    def activate(self, changes: Changes) -> None:
        """Compile the programs, which each run starts; create the folders, and the leases once the driver answers."""
        # Programs write no bytecode themselves. Sources are compared: an old one is not run.
        compile_all = f"python3 -m compileall -q --invalidation-mode checked-hash {LIBRARY}/agent {LIBRARY}/gpus"
        own = [path for path in changes if path.startswith(f"{LIBRARY}/")]
        server.shell(name="Compile the programs of runs", commands=[compile_all], _if=changed(changes, *own))
        create = f"systemd-tmpfiles --create {TMPFILES}"
        server.shell(name="Create the folders of runs", commands=[create], _if=changed(changes, TMPFILES))
        if self.has_gpus:
            start_units({"Prepare the leases of GPUs at boot": UNIT}, runs=False)
            server.shell(name="Prepare leases", commands=[f"systemctl restart --no-block {UNIT}"], _if=changed(changes))
