"""Small wheels for tests, and a hub that has some of them."""

import hashlib
import json
from base64 import urlsafe_b64encode
from collections.abc import Sequence
from io import BytesIO
from zipfile import ZipFile, ZipInfo

from bedplate.programs.connection import FILES
from tests.testlab.fakes.laptop import Answer
from tests.testlab.fakes.runs import RunHub


def wheel(name: str, version: str, requires: Sequence[str] = (), program: str = "") -> tuple[str, bytes]:
    """Return the name of a wheel and its bytes: a package of one module, and a program of its name, or this one."""
    info = f"{name}-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    texts = {
        f"{name}/__init__.py": f"version = {version!r}\ndef main():\n    print({name!r}, version)\n",
        f"{info}/METADATA": metadata + "".join(f"Requires-Dist: {word}\n" for word in requires),
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": "" if program else f"[console_scripts]\n{name} = {name}:main\n",
    }
    texts |= {f"{name}-{version}.data/scripts/{name}": program} if program else {}
    digests = {file: hashlib.sha256(text.encode()).digest() for file, text in texts.items()}
    rows = [
        f"{file},sha256={urlsafe_b64encode(digests[file]).rstrip(b'=').decode()},{len(text.encode())}"
        for file, text in texts.items()
    ]
    texts[f"{info}/RECORD"] = "\n".join([*rows, f"{info}/RECORD,,", ""])
    buffer = BytesIO()
    with ZipFile(buffer, "w") as archive:
        for file, text in texts.items():
            entry = ZipInfo(file)
            entry.external_attr = (0o100755 if ".data/" in file else 0o100644) << 16
            archive.writestr(entry, text)
    return f"{name}-{version}-py3-none-any.whl", buffer.getvalue()


def digest(content: bytes) -> str:
    """Return the hash of a wheel as requirements have it."""
    return f"--hash=sha256:{hashlib.sha256(content).hexdigest()}"


class WheelHub(RunHub):
    """A hub with a folder of wheels, as nginx lists it; without any it has no folder. First it fails by `failures`."""

    failures: Sequence[int] = ()

    def respond(self, method: str, path: str, body: bytes) -> Answer:
        """Answer as the hub does."""
        if path == f"{FILES}/wheels":
            if self.failures:
                status, *self.failures = self.failures
                return status, {}, b"{}"
            names = [name.partition("/")[2] for name in self.files if name.startswith("wheels/")]
            answer = [{"name": name, "type": "file", "size": 1} for name in names]
            return (200, {}, json.dumps(answer).encode()) if names else (404, {}, b"{}")
        return super().respond(method, path, body)

    def add(self, *wheels: tuple[str, bytes]) -> None:
        """Put wheels into the folder."""
        self.files.update({f"wheels/{name}": content for name, content in wheels})
