"""The role `people`: accounts, groups, keys, administrators and homes, as the fleet file has them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from pyinfra.api.facts import FactBase
from pyinfra.api.operation import OperationMeta
from pyinfra.context import host
from pyinfra.operations import files, server

from bedplate.plan.fleet import PEOPLE_IDS, Account, Accounts
from bedplate.plan.nodes import first_keys
from roles.base import Changes, Due, Role, carry_out
from roles.files import Marks, Shipped, rendered, ship, text_of
from roles.hardened.logins import IMAGE_ACCOUNTS
from roles.people.accounts import KEYS, Accounted, Standing, dues, ended, endings, locking, refuse_conflicts
from roles.system import install


class HomesIn(FactBase[Mapping[str, int]]):
    """The user id that owns each folder in a folder, by name."""

    default = dict

    def command(self, folder: str) -> str:
        """Ask for all of them at once."""
        return f"find {folder} -mindepth 1 -maxdepth 1 -type d -printf '%U %f\\n' 2>/dev/null || true"

    def process(self, output: Iterable[str]) -> Mapping[str, int]:
        """Part the owner from the name."""
        return {name: int(uid) for uid, _, name in (line.partition(" ") for line in output)}


def missing_homes(folder: str, accounts: Accounts, there: Mapping[str, int]) -> Iterator[Due]:
    """Yield the homes to make; one that is there is its owner's, whoever that is."""
    for person in accounts.people:
        if person.name not in there:
            # Whole under another name first: somebody may log in at any moment.
            made, home = f"{folder}/.{person.name}.new", f"{folder}/{person.name}"
            yield Due(
                f"Home of {person.name}",
                (
                    f"rm -rf {made} && cp -rT /etc/skel {made} && chown -R {person.uid}:{person.uid} {made}",
                    f"chmod 700 {made} && mv -T {made} {home}",
                ),
            )


_PEOPLE_FROM = 1000  # login.defs(5), UID_MIN of both distributions
# A name with a dot is one that sudo does not read: the text counts only after visudo has read it. Source: sudoers(5).
_NO_GRANTS = (
    "for file in /etc/sudoers.d/*; do "
    'if grep -qE "^[[:space:]]*{name}[[:space:]]" "$file"; then '
    'sed -E "/^[[:space:]]*{name}[[:space:]]/d" "$file" >"$file.new" && visudo --check --quiet --file="$file.new" '
    '&& chmod 440 "$file.new" && mv -fT "$file.new" "$file" || exit; fi; done'
)


def key_files(standing: Standing, first: str | None) -> tuple[str, ...]:
    """Return the files of keys, in homes of the image's accounts, that are to hold administrators' keys alone."""
    return tuple(file for name, file in standing.first.items() if name in (first, standing.by))


def shuttings(standing: Standing, first: str | None) -> Iterator[Due]:
    """Yield what shuts each account of the image that nobody is to come in by."""
    for name in _strange(standing, first):
        login, file = standing.logins[name], standing.first.get(name)
        groups = any(name in group.members for group in standing.groups.values())
        commands = (
            *locking(login),
            *((f"usermod --groups '' {name}",) if groups else ()),
            *((_NO_GRANTS.format(name=name),) if name in standing.granted else ()),
            *((f"rm -f '{file}'",) if file else ()),
        )
        if commands:
            yield Due(f"{name} of the image is shut", commands)


def image_endings(standing: Standing, first: str | None) -> Iterator[Due]:
    """Yield the ends of what runs in the names of accounts that are shut, unless their number is somebody else's."""
    for name in _strange(standing, first):
        uid = standing.logins[name].uid
        others = any(login.uid == uid for login in standing.logins.values() if login.name != name)
        if uid >= _PEOPLE_FROM and uid not in PEOPLE_IDS and not others:
            yield from ended(name, uid, standing)


def _strange(standing: Standing, first: str | None) -> tuple[str, ...]:
    return tuple(name for name in IMAGE_ACCOUNTS if name in standing.logins and name not in (first, standing.by))


SCRIPT = "/usr/local/sbin/bedplate-trial-people"
# Is there while a trial goes on: what has been kept.
KEPT = "/var/lib/bedplate/trial-people/paths"
# Longer than it takes to write a few files and to come in anew.
SECONDS = 120


@dataclass(frozen=True, slots=True)
class Trial:
    """What lets administrators in, and makes them root."""

    ways: Sequence[Shipped]

    def keep(self) -> Iterator[OperationMeta]:
        """Yield what keeps the former ones, before any is written."""
        yield from ship(Shipped("Program of keys on trial", SCRIPT, text_of("people/bedplate-trial-people"), "755"))
        if self._is_due:
            paths = " ".join(each.path for each in self.ways)
            yield server.shell(name="Former ways of administrators", commands=[f"{SCRIPT} keep {SECONDS} {paths}"])

    def begin(self) -> Iterator[OperationMeta]:
        """Yield what has whoever applies come in anew, now that they are written."""
        if self._is_due:
            yield server.shell(name="Ways of administrators, on trial", commands=[f"{SCRIPT} try"])

    @property
    def _is_due(self) -> bool:
        """Whether something is to be written, or was, by an apply that was cut off before anybody came in anew."""
        found = host.get_fact(Marks, paths=(KEPT, *(each.path for each in self.ways)))
        return KEPT in found or any(found.get(each.path) != each.mark for each in self.ways)


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
