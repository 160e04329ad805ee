"""The role `people`: accounts, groups, SSH keys, sudo rights and home folders from the fleet file.

New keys and sudo rights of administrators are reverted unless a new login confirms them.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from pyinfra.api.facts import FactBase
from pyinfra.context import host
from pyinfra.operations import files, server

from bedplate.plan.fleet import PEOPLE_IDS, Access, Account, Accounts
from roles.base import (
    NO_CHANGES,
    Changes,
    FileSignatures,
    ManagedFile,
    PendingChange,
    Role,
    file_text,
    put_files,
    render,
    run_changes,
)
from roles.hardened.logins import IMAGE_ACCOUNTS
from roles.people.accounts import (
    KEYS,
    AccountState,
    ReadAccounts,
    account_changes,
    end_departed,
    end_processes,
    lock_commands,
    refuse_conflicts,
)
from roles.system import BoolFact, install_packages


class HomesIn(FactBase[Mapping[str, int]]):
    """The owner's user id of each folder in a folder, by name."""

    default = dict

    def command(self, folder: str) -> str:
        """List all folders in one query."""
        return f"find {folder} -mindepth 1 -maxdepth 1 -type d -printf '%U %f\\n' 2>/dev/null || true"

    def process(self, output: Iterable[str]) -> Mapping[str, int]:
        """Parse an owner and a name a line."""
        return {name: int(uid) for uid, _, name in (line.partition(" ") for line in output)}


def missing_homes(folder: str, accounts: Accounts, existing: Mapping[str, int]) -> Iterator[PendingChange]:
    """Yield the creation of each missing home; an existing folder is never changed."""
    for person in accounts.people:
        if person.name not in existing:
            # Created under another name and then renamed: the person may log in at any moment.
            new, home = f"{folder}/.{person.name}.new", f"{folder}/{person.name}"
            yield PendingChange(
                f"Create home of {person.name}",
                (
                    f"rm -rf {new} && cp -rT /etc/skel {new} && chown -R {person.uid}:{person.uid} {new}",
                    f"chmod 700 {new} && mv -T {new} {home}",
                ),
            )


_UID_MIN = 1000  # login.defs(5), UID_MIN of both distributions
# sudo ignores file names with a dot: the new text takes effect only after visudo has checked it. Source: sudoers(5).
_REMOVE_GRANTS = (
    "for file in /etc/sudoers.d/*; do "
    'if grep -qE "^[[:space:]]*{name}[[:space:]]" "$file"; then '
    'sed -E "/^[[:space:]]*{name}[[:space:]]/d" "$file" >"$file.new" && visudo --check --quiet --file="$file.new" '
    '&& chmod 440 "$file.new" && mv -fT "$file.new" "$file" || exit; fi; done'
)


def admin_key_files(state: AccountState, first: str | None) -> tuple[str, ...]:
    """Return the key files of the image's accounts that must contain only the administrators' keys."""
    return tuple(file for name, file in state.first.items() if name in (first, state.by))


def lock_image_accounts(state: AccountState, first: str | None) -> Iterator[PendingChange]:
    """Yield the changes that lock the accounts of the image which the fleet does not use."""
    for name in _unused(state, first):
        login, file = state.logins[name], state.first.get(name)
        groups = any(name in group.members for group in state.groups.values())
        commands = (
            *lock_commands(login),
            *((f"usermod --groups '' {name}",) if groups else ()),
            *((_REMOVE_GRANTS.format(name=name),) if name in state.granted else ()),
            *((f"rm -f '{file}'",) if file else ()),
        )
        if commands:
            yield PendingChange(f"Lock account {name} of the image", commands)


def end_image_processes(state: AccountState, first: str | None) -> Iterator[PendingChange]:
    """Yield the changes that end the processes of locked accounts, unless another account has the same id."""
    for name in _unused(state, first):
        uid = state.logins[name].uid
        is_shared = any(login.uid == uid for login in state.logins.values() if login.name != name)
        if uid >= _UID_MIN and uid not in PEOPLE_IDS and not is_shared:
            yield from end_processes(name, uid, state)


def _unused(state: AccountState, first: str | None) -> tuple[str, ...]:
    return tuple(name for name in IMAGE_ACCOUNTS if name in state.logins and name not in (first, state.by))


SCRIPT = "/usr/local/sbin/bedplate-trial-people"
# Exists while a change waits for its confirmation: the paths of the saved files.
KEPT = "/var/lib/bedplate/trial-people/paths"
# Longer than writing the files and logging in again takes.
SECONDS = 120


@dataclass(frozen=True, slots=True)
class Confirmation:
    """A change of administrators' keys and sudo rights (`files`), which a new login must confirm within SECONDS."""

    files: Sequence[ManagedFile]

    def keep(self) -> None:
        """Save the current files before the new ones are written."""
        put_files(ManagedFile(f"Write {SCRIPT}", SCRIPT, file_text("people/bedplate-trial-people"), "755"))
        if self._is_needed:
            paths = " ".join(file.path for file in self.files)
            server.shell(name="Save access of administrators", commands=[f"{SCRIPT} keep {SECONDS} {paths}"])

    def begin(self) -> None:
        """Request the confirmation, after the new files are written."""
        if self._is_needed:
            server.shell(name="Confirm access of administrators", commands=[f"{SCRIPT} try"])

    @property
    def _is_needed(self) -> bool:
        """Whether a file must change, or an interrupted apply changed one without a confirmation."""
        signatures = host.get_fact(FileSignatures, paths=(KEPT, *(file.path for file in self.files)))
        return KEPT in signatures or any(signatures.get(file.path) != file.signature for file in self.files)


SUDOERS = "/etc/sudoers.d/50-bedplate-people"
# Outside the folders of sudo, until visudo has checked it.
_DRAFT = "/etc/bedplate/sudoers"
_PAM = "/usr/share/pam-configs/bedplate-home"


class MakesHomes(BoolFact):
    """Whether a login creates a missing home."""

    def command(self) -> str:
        """Search for the line of pam_mkhomedir."""
        return "grep 'pam_mkhomedir.so umask=0077' /etc/pam.d/common-session || true"


@dataclass(frozen=True, slots=True)
class People(Role):
    """The accounts of a node; `homes` is the folder with the homes if the node is their file server.

    `first` is the account for the first apply to a machine of a site; a cloud machine has none.
    """

    accounts: Accounts
    homes: str | None = None
    first: str | None = None
    name: ClassVar[str] = "people"

    def install(self) -> None:
        """Install sudo, pkill, usermod and PAM modules."""
        install_packages("Install packages of accounts", ("sudo", "procps", "passwd", "libpam-modules"))

    def configure(self) -> Changes:
        """Write keys and sudo rights, then change accounts. Raises InputError for conflicting names and ids."""
        state = host.get_fact(ReadAccounts)
        refuse_conflicts(self.accounts, state)
        confirmation = Confirmation((self._rights, *map(_keys_of, self._admins), *self._image_keys(state)))
        # Keys first: if the operator cannot log in, no account is locked.
        confirmation.keep()
        self._put_keys(state)
        self._put_rights()
        confirmation.begin()
        run_changes((*account_changes(self.accounts, state), *lock_image_accounts(state, self.first)))
        _create_homes_at_login()
        self._create_homes()
        return NO_CHANGES

    def activate(self, changes: Changes) -> None:
        """End the processes of people who left or may not log in, whose accounts are locked by now."""
        del changes
        state = host.get_fact(ReadAccounts)
        run_changes((*end_departed(self.accounts, state), *end_image_processes(state, self.first)))

    def _put_keys(self, state: AccountState) -> None:
        """Write keys in a folder of root, outside the homes, which may be on a file server that is down."""
        files.directory(name="Create the folder of keys", path=KEYS, user="root", group="root", mode="755")
        users = self.accounts.having(Access.LOGIN, Access.TOKENS)
        for name in sorted(state.keyed - {person.name for person in users}):
            files.file(name=f"Remove keys of {name}", path=f"{KEYS}/{name}", present=False)
        put_files(*map(_keys_of, users))
        put_files(*self._image_keys(state))

    def _put_rights(self) -> None:
        """Write the sudo rights of administrators, after visudo has checked them."""
        put_files(ManagedFile("Write a draft of sudo rights", _DRAFT, self._rights.text, "440"))
        if host.get_fact(FileSignatures, paths=(SUDOERS,)).get(SUDOERS) != self._rights.signature:
            put = f"install -m 440 {_DRAFT} {SUDOERS}"
            check = f"visudo --check --file={_DRAFT} --quiet"
            server.shell(name="Set sudo rights of administrators", commands=[f"{check} && {put}"])

    @property
    def _admins(self) -> tuple[Account, ...]:
        return tuple(person for person in self.accounts.people if person.admin)

    @property
    def _rights(self) -> ManagedFile:
        text = render("people/sudoers.j2", admins=[person.name for person in self._admins])
        return ManagedFile("Set sudo rights of administrators", SUDOERS, text, "440")

    def _image_keys(self, state: AccountState) -> tuple[ManagedFile, ...]:
        text = self.accounts.admin_keys_file
        key_files = admin_key_files(state, self.first)
        # The owner of the home may have replaced the file by a symlink.
        return tuple(
            ManagedFile(f"Write keys of administrators to {file}", file, text, replaces_symlink=True)
            for file in key_files
        )

    def _create_homes(self) -> None:
        if self.homes:
            files.directory(name="Create the folder of homes", path=self.homes, user="root", group="root", mode="755")
            run_changes(missing_homes(self.homes, self.accounts, host.get_fact(HomesIn, folder=self.homes)))


def _keys_of(person: Account) -> ManagedFile:
    return ManagedFile(
        f"Write keys of {person.name}", f"{KEYS}/{person.name}", "".join(f"{key}\n" for key in person.keys)
    )


def _create_homes_at_login() -> None:
    """Declare that a login creates a missing home."""
    put_files(ManagedFile("Write the PAM profile of homes", _PAM, file_text("people/pam-config")))
    if not host.get_fact(MakesHomes):
        server.shell(
            name="Enable creation of homes at login", commands=["pam-auth-update --package --enable bedplate-home"]
        )
