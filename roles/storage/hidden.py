"""Homes of the node's own accounts that a mount would hide: moved aside first, so that whoever applies stays able to.

Fresh machines have such an account, `ubuntu` or the like, whose keys lie in its home. People's homes are meant to be
hidden: theirs are on the mount.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from shlex import quote

from pyinfra.api.facts import FactBase

from bedplate.plan.accounts import PEOPLE_IDS
from roles.due import Due

ASIDE = "/var/lib/bedplate/home"


class OwnHomes(FactBase[Mapping[str, tuple[int, str]]]):
    """The id and the home of each account, by name."""

    default = dict

    def command(self) -> str:
        """Ask the node's own table."""
        return "cut -d: -f1,3,6 /etc/passwd"

    def process(self, output: Iterable[str]) -> Mapping[str, tuple[int, str]]:
        """Part the lines; those that are nobody's, blank or of another list, are skipped."""
        parts = (line.split(":") for line in output)
        return {name: (int(uid), home) for name, uid, home in filter(_is_somebodys, parts)}


def _is_somebodys(fields: Sequence[str]) -> bool:
    return len(fields) == 3 and fields[1].isdecimal()  # noqa: PLR2004  name, id and home


def hidden(paths: Collection[str], homes: Mapping[str, tuple[int, str]]) -> Iterator[Due]:
    """Yield the moves: a copy, for somebody may be in the old home, and a line of the table under its lock."""
    for name, (uid, home) in homes.items():
        if uid not in PEOPLE_IDS and any(home.startswith(f"{path}/") for path in paths):
            new = f"{ASIDE}/{name}"
            whole = f"if [ -d {quote(home)} ]; then cp -a {quote(home)} {new} && chmod o= {new}; fi"
            copy = f"install -d -m 755 {ASIDE} && rm -rf {new} && {whole}"
            line = rf"s|^({name}:[^:]*:{uid}:[^:]*:[^:]*):{home}:|\1:{new}:|"
            # usermod refuses while the account has processes, as that of whoever applies has; vipw takes the same lock,
            # and takes a table for unchanged that was changed twice within one second.
            edit = f"sleep 1 && EDITOR={quote(f'sed -i -E {quote(line)}')} vipw --quiet"
            yield Due(
                f"Home of {name} beside {home}", (copy, f"{edit} && grep -q {quote(f'^{name}:.*:{new}:')} /etc/passwd")
            )
