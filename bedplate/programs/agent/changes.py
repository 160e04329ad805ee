"""What a session keeps of its folder: files that were changed, and have neither the name nor the words of a secret."""

import json
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from stat import S_ISREG

from .sockets import say

_SECRET = re.compile(
    r"(.*/)?(\.env(\..+)?|\.netrc|\.pgpass|id_(rsa|dsa|ecdsa|ed25519)|.*\.(pem|key|p12|pfx|kdbx|ovpn|kubeconfig)"
    r"|kubeconfig.*|credentials(\.json|\.csv)?|service[-_]account.*\.json|rclone\.conf|\.(aws|ssh|kube)/.*)",
    re.IGNORECASE | re.DOTALL,
)
_NO_SECRET = re.compile(r"(.*/)?(\.env\.(example|sample|template)|.*\.pub\.pem)", re.IGNORECASE | re.DOTALL)
# Bytes that are kept, what is never kept, files of folders that programs have made, and names in a line of the log.
_LARGEST, _NOT_KEPT = 100 << 20, {"__pycache__", ".ipynb_checkpoints", ".git"}
_MADE, _SHOWN = ("pyvenv.cfg", "conda-meta"), 5
# Characters of a line of a secret that no other text has by chance.
_LINE = 12


def is_secret(name: str) -> bool:
    """Return whether a path is one of files that usually have secrets."""
    return bool(_SECRET.fullmatch(name)) and not _NO_SECRET.fullmatch(name)


def keep_changes(work: Path, output: Path, since: float, secrets: "Sequence[str] | None") -> None:
    """Copy files that were changed since a time to the output of a run, the smallest first; say which are not copied.

    Without its secrets (None), nothing is copied.
    """
    words = {form.encode() for secret in secrets or () for form in _forms(secret)}
    refused, left = dict[str, list[str]](), _LARGEST
    for size, name in sorted(_changes(work, since)):
        # What is negative is no size.
        why = "a folder of programs, or no regular file" if size < 0 else "over 100 MB in all" if size > left else ""
        why = "the secrets of the session cannot be read" if secrets is None else why
        why = why or ("named as a secret" if is_secret(name) else _copy(work / name, output / name, words))
        left -= 0 if why else size
        if why:
            refused.setdefault(why, []).append(name)
    for why, names in refused.items():
        more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
        say(f"not kept, {why}: {', '.join(map(ascii, names[:_SHOWN]))}{more}")


def _forms(secret: str) -> Iterator[str]:
    """Yield a secret as files may have it: its lines, too, and as notebooks and other JSON escape them."""
    for text in (secret, *(line.strip() for line in secret.splitlines() if len(line.strip()) >= _LINE)):
        yield from (text, *(json.dumps(text, ensure_ascii=is_ascii)[1:-1] for is_ascii in (False, True)))


def _changes(work: Path, since: float) -> Iterator[tuple[int, str]]:
    """Yield size and path of each file that was changed, or got its name, since a time; -1 for what is no file."""
    for place, folders, files in os.walk(work):
        folder = Path(place)
        if folder != work and any((folder / name).exists() for name in _MADE):
            folders.clear()
            yield -1, str(folder.relative_to(work))
            continue
        folders[:] = [name for name in folders if name not in _NOT_KEPT]
        for path in (folder / name for name in files):
            try:
                facts = path.lstat()
            except OSError:
                continue
            if max(facts.st_mtime, facts.st_ctime) >= since:
                yield facts.st_size if S_ISREG(facts.st_mode) else -1, str(path.relative_to(work))


def _copy(path: Path, new: Path, words: set[bytes]) -> str:
    """Copy a file unless it has one of these words; return why it is not copied. No file is replaced."""
    try:
        data = path.read_bytes()
        if any(word in data for word in words):
            return "with a secret"
        new.parent.mkdir(parents=True, exist_ok=True)
        with new.open("xb") as file:
            file.write(data)
    except FileExistsError:
        return "the output has another one of its name"
    except OSError as error:
        return error.strerror or str(error)
    return ""
