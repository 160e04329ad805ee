"""The role `people`: accounts, groups, keys, administrators and homes, as the fleet file has them."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import ClassVar

from pyinfra.api.facts import FactBase
from pyinfra.api.operation import OperationMeta
from pyinfra.context import host
from pyinfra.operations import files, server

from bedplate.plan.accounts import Account, Accounts
from bedplate.plan.first_keys import first_keys
from roles.base import Changes, Role
from roles.due import carry_out
from roles.packages import install
from roles.people.conflict import refuse_conflicts
from roles.people.due import dues, endings
from roles.people.homes import HomesIn, missing_homes
from roles.people.image import image_endings, key_files, shuttings
from roles.people.standing import KEYS, Accounted, Standing
from roles.people.trial import Trial
from roles.shipped import Marks, Shipped, ship
from roles.template import rendered, text_of

SUDOERS = "/etc/sudoers.d/50-bedplate-people"
# Where sudo does not read: a text counts only after visudo has.
_DRAFT = "/etc/bedplate/sudoers"
_PAM = "/usr/share/pam-configs/bedplate-home"


class MakesHomes(FactBase[bool]):
    """Whether a login makes the home that is missing."""

    default = bool

    def command(self) -> str:
        """Look at what a session does."""
        return "grep -c 'pam_mkhomedir.so umask=0077' /etc/pam.d/common-session || true"

    def process(self, output: Iterable[str]) -> bool:
        """Take any such line for yes."""
        return "".join(output).strip() not in {"", "0"}


@dataclass(frozen=True, slots=True)
class People(Role):
    """Everybody's account on a node; `homes` is the folder that a file server keeps the homes in.

    `first` is the account by which a machine of a site is first configured; one of the cloud has none.
    """

    accounts: Accounts
    homes: str | None = None
    first: str | None = None
    name: ClassVar[str] = "people"

    def install(self) -> None:
        """Install what lets administrators become root, and what ends processes."""
        install("Tools of accounts", ("sudo", "procps", "passwd", "libpam-modules"))

    def configure(self) -> Changes:
        """Make accounts what the plan says; InputError, before anything, where a name or an id is somebody else's."""
        standing = host.get_fact(Accounted)
        refuse_conflicts(self.accounts, standing)
        trial = Trial((self._rights, *map(_keys_of, self._admins), *self._first(standing)))
        # Before anybody is locked out: who applies must not be among them.
        ways = [*trial.keep(), *self._keys(standing), *self._sudo(), *trial.begin()]
        due = (*dues(self.accounts, standing), *shuttings(standing, self.first))
        return [*ways, *carry_out(due), *_logins(), *self._homes()]

    def activate(self, changes: Changes) -> None:
        """End what people who left still run, now that they can start nothing more."""
        del changes
        standing = host.get_fact(Accounted)
        carry_out((*endings(self.accounts, standing), *image_endings(standing, self.first)))

    def _keys(self, standing: Standing) -> Iterator[OperationMeta]:
        """Yield the keys outside homes, root's own: they count also when the homes are away, and nobody adds any."""
        yield files.directory(name="Folder of keys", path=KEYS, user="root", group="root", mode="755")
        for name in sorted(standing.keyed - self.accounts.uids.keys()):
            yield files.file(name=f"No keys of {name}", path=f"{KEYS}/{name}", present=False)
        yield from ship(*map(_keys_of, self.accounts.people))
        yield from ship(*self._first(standing))

    def _sudo(self) -> Iterator[OperationMeta]:
        """Yield the administrators' rights, which count only as a whole text that visudo has read."""
        yield from ship(Shipped("Draft of administrators", _DRAFT, self._rights.text, "440"))
        if host.get_fact(Marks, paths=(SUDOERS,)).get(SUDOERS) != self._rights.mark:
            put = f"install -m 440 {_DRAFT} {SUDOERS}"
            yield server.shell(name="Administrators", commands=[f"visudo --check --file={_DRAFT} --quiet && {put}"])

    @property
    def _admins(self) -> tuple[Account, ...]:
        return tuple(each for each in self.accounts.people if each.admin)

    @property
    def _rights(self) -> Shipped:
        text = rendered("people/sudoers.j2", admins=[each.name for each in self._admins])
        return Shipped("Administrators", SUDOERS, text, "440")

    def _first(self, standing: Standing) -> tuple[Shipped, ...]:
        text = first_keys(self.accounts)
        files_of_keys = key_files(standing, self.first)
        # A home's owner may have made a symlink of it.
        return tuple(Shipped(f"Administrators in {file}", file, text, replaces_symlink=True) for file in files_of_keys)

    def _homes(self) -> Iterator[OperationMeta]:
        if self.homes:
            yield files.directory(name="Folder of homes", path=self.homes, user="root", group="root", mode="755")
            yield from carry_out(missing_homes(self.homes, self.accounts, host.get_fact(HomesIn, folder=self.homes)))


def _keys_of(person: Account) -> Shipped:
    return Shipped(f"Keys of {person.name}", f"{KEYS}/{person.name}", "".join(f"{key}\n" for key in person.keys))


def _logins() -> Iterator[OperationMeta]:
    """Yield what lets whoever logs in first find a home of their own."""
    yield from ship(Shipped("Homes at first login", _PAM, text_of("people/pam-config")))
    if not host.get_fact(MakesHomes):
        yield server.shell(
            name="Homes are made at login", commands=["pam-auth-update --package --enable bedplate-home"]
        )
