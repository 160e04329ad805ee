"""OpenSCAP's judgement of a test node: the content, fetched as a signed package of Debian 13, and what was found.

Debian 12 packages the scanner, but no content for a system of today. The package of Debian 13 is data alone: it is
fetched by an apt of its own settings, so that this machine's sources stay as they are, from the archive whose signature
Debian's keyring proves, and kept when its sum is the one that is written here.
"""

import fcntl
import hashlib
import os
import xml.etree.ElementTree as ET
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.support.stand.command import call
from tests.support.stand.mirror import APT_GET, mirror_here

_PACKAGE, _VERSION = "ssg-debderived", "0.1.76-1"
_SHA256 = "dd41637d94ac0f9f3cb5cbb41a6ce17d8f0739673291bdb1763c3f16bc8dbee7"
_CONTENT = "usr/share/xml/scap/ssg/content/ssg-ubuntu2404-ds.xml"
_KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
_PREFIX = "xccdf_org.ssgproject.content_"
PROFILE = f"{_PREFIX}profile_cis_level1_server"
_NAMES = {"x": "http://checklists.nist.gov/xccdf/1.2"}


@dataclass(frozen=True, slots=True)
class Judgement:
    """The score of a profile, of 100, and what became of each rule that was judged."""

    score: float
    results: Mapping[str, str]

    @property
    def failed(self) -> frozenset[str]:
        """The rules that are not kept, or that could not be judged."""
        return frozenset(rule for rule, result in self.results.items() if result in {"fail", "error", "unknown"})


def content() -> Path:
    """Return the content of Ubuntu 24.04; fetches it where it is missing. Raises CommandError."""
    folder = Path(os.environ.get("XDG_CACHE_HOME", "/var/cache")) / "bedplate" / f"{_PACKAGE}-{_VERSION}"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / _CONTENT).exists():
            call("dpkg-deb", "--extract", str(_package(folder)), str(folder), seconds=120)
    return folder / _CONTENT


def judgement(results: str) -> Judgement:
    """Read what the scanner wrote."""
    found = ET.fromstring(results).find(".//x:TestResult", _NAMES)  # noqa: S314  # our own scanner's text
    assert found is not None, "the scanner judged nothing"
    score = found.findtext("x:score", namespaces=_NAMES)
    assert score is not None
    rules = {
        each.attrib["idref"].removeprefix(f"{_PREFIX}rule_"): str(each.findtext("x:result", namespaces=_NAMES))
        for each in found.findall("x:rule-result", _NAMES)
    }
    return Judgement(float(score), rules)


def _package(folder: Path) -> Path:
    """Fetch the package by an apt that has one source and keeps its lists here."""
    state = folder / "apt"
    for name in ("lists/partial", "cache/archives/partial", "parts"):
        (state / name).mkdir(parents=True, exist_ok=True)
    (state / "sources.list").write_text(f"deb [signed-by={_KEYRING}] {mirror_here().debian} trixie main\n")
    own = (
        f"-oDir::Etc::SourceList={state / 'sources.list'}",
        f"-oDir::Etc::SourceParts={state / 'parts'}",
        f"-oDir::State::Lists={state / 'lists'}",
        f"-oDir::Cache={state / 'cache'}",
        "-oAPT::Sandbox::User=root",
    )
    call(*APT_GET, *own, "update", seconds=300)
    call("env", "--chdir", str(folder), *APT_GET, *own, "download", f"{_PACKAGE}={_VERSION}", seconds=300)
    package = folder / f"{_PACKAGE}_{_VERSION}_all.deb"
    assert hashlib.sha256(package.read_bytes()).hexdigest() == _SHA256, f"{package} is another than the one known"
    return package
