"""Container images built here, and a registry of them: Debian's docker-registry, without a login."""

import json
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import pytest

from images.containers import BuiltImage, build
from tests.testlab.machines.layers import mirror_here
from tests.testlab.run import lack

PROGRAMS = ("docker-registry", "skopeo", "mmdebstrap")


def need_container_tools() -> None:
    """Skip the test without the programs that build, push and serve images."""
    if missing := [name for name in PROGRAMS if not shutil.which(name)]:
        lack(f"needs {', '.join(missing)}")


def built_here(recipe: str, folder: Path) -> BuiltImage:
    """Build an image by this machine's mirror of Debian and index of packages."""
    mirror = mirror_here()
    with pytest.MonkeyPatch.context() as patch:
        # The tests' proxy refuses connections.
        for name in ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"):
            patch.delenv(name, raising=False)
        if mirror.proxy:
            patch.setenv("http_proxy", mirror.proxy)
        return build(recipe, folder, mirror.debian)


@contextmanager
def registry(folder: Path, address: str = "127.0.0.1") -> Iterator[str]:
    """Yield the name of a registry that keeps its images in a folder."""
    with socket.socket() as free:
        free.bind((address, 0))
        host = f"{address}:{free.getsockname()[1]}"
    settings = {"version": 0.1, "storage": {"filesystem": {"rootdirectory": str(folder)}}, "http": {"addr": host}}
    file = folder.parent / f"{folder.name}.json"
    file.write_text(json.dumps(settings))
    nothing = subprocess.DEVNULL
    with subprocess.Popen(("docker-registry", "serve", file), stdout=nothing, stderr=nothing) as process:
        try:
            _wait(f"http://{host}/v2/")
            yield host
        finally:
            process.kill()


def _wait(url: str) -> None:
    end = time.monotonic() + 20
    while True:
        try:
            with urlopen(url):  # noqa: S310  of this machine
                return
        except URLError:
            assert time.monotonic() < end, f"{url} does not answer"
            time.sleep(0.1)
