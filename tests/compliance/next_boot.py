"""What the next boot makes of the kernel's settings, by the files that systemd reads then; never what is in force."""

from collections.abc import Iterable, Mapping

from testinfra.host import Host

from roles.sysctl import otherwise

_WHEN = "at the next boot, by a file that `systemd-analyze cat-config sysctl.d` shows"
_SWAPPED = str.maketrans("./", "/.")


def at_the_next_boot(host: Host, wanted: Mapping[str, str]) -> list[str]:
    """Return the settings that the next boot makes otherwise, or not at all, of those that are wanted."""
    told = told_by_files(host.check_output("systemd-analyze cat-config sysctl.d").splitlines())
    missing = [f"{key} is not set at boot" for key in wanted if key not in told]
    return [*missing, *(f"{key} = {value} {_WHEN}" for key, value in otherwise(told, wanted).items())]


def told_by_files(lines: Iterable[str]) -> dict[str, str]:
    """Return what files say of each setting: of one that stands there twice the last word. Source: sysctl.d(5)."""
    parts = (line.strip().partition("=") for line in lines if not line.lstrip().startswith(("#", ";")))
    return {_dotted(key.strip().removeprefix("-")): " ".join(value.split()) for key, sign, value in parts if sign}


def _dotted(key: str) -> str:
    """Return a key with dots between its parts; where a slash comes first, slashes part it."""
    first = next((sign for sign in key if sign in "./"), ".")
    return key if first == "." else key.translate(_SWAPPED)
