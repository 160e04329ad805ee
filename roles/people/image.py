"""The accounts that a machine's image came with: on a site one of them is the first to come in by; all others are shut.

Decides, and does nothing. Whoever applies by one of them is not cut off: the next apply by another name shuts it.
"""

from collections.abc import Iterator

from bedplate.plan.accounts import PEOPLE_IDS
from roles.due import Due
from roles.hardened.sshd import IMAGE_ACCOUNTS
from roles.people.due import ended, locking
from roles.people.standing import Standing

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
