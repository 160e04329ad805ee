"""Sources of packages: each names the key that signs it, and none is trusted without."""

import pytest

from roles.baseline.role import Baseline
from roles.baseline.sources import Archive, SourceFiles, signed
from tests.support.nodes import lab_node
from tests.support.recorded import recorded
from tests.support.recorder import Recorder

ARCHIVE = Archive("noble", "/usr/share/keyrings/ubuntu-archive-keyring.gpg")
KEY = "signed-by=/usr/share/keyrings/ubuntu-archive-keyring.gpg"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("deb http://m/ubuntu noble main", f"deb [{KEY}] http://m/ubuntu noble main"),
        ("deb-src http://m/ubuntu noble-security main", f"deb-src [{KEY}] http://m/ubuntu noble-security main"),
        ("deb [arch=amd64] http://m/ubuntu noble main", f"deb [arch=amd64 {KEY}] http://m/ubuntu noble main"),
        ("deb [trusted=yes] http://m/ubuntu noble main", f"deb [{KEY}] http://m/ubuntu noble main"),
        ("  deb [trusted=yes] http://other/ stable main", "deb http://other/ stable main"),
        ("deb [trusted=yes] http://other/ stable main", "deb http://other/ stable main"),
        ("deb [ allow-insecure=yes arch=arm64 ] http://other/ ./", "deb [arch=arm64] http://other/ ./"),
        (
            "deb [signed-by=/etc/k.gpg] http://m/ubuntu noble main",
            "deb [signed-by=/etc/k.gpg] http://m/ubuntu noble main",
        ),
        ("deb http://other/ noblesse main", "deb http://other/ noblesse main"),
        ("# deb http://m/ubuntu noble main", "# deb http://m/ubuntu noble main"),
        ("", ""),
    ],
)
def test_a_line_is_given_the_archives_key_and_loses_blind_trust(before: str, after: str) -> None:
    """Only the distribution's own releases get its key; what is others' keeps its options but trust."""
    assert signed(f"{before}\n", "/etc/apt/sources.list", ARCHIVE) == f"{after}\n"


def test_a_stanza_is_given_the_archives_key_and_loses_blind_trust() -> None:
    """The newer form of sources has the same promises, stanza by stanza."""
    ours, others = (
        "Types: deb\nURIs: http://m\nSuites: noble noble-updates\n",
        "Types: deb\nURIs: http://o\nSuites: stable\n",
    )

    after = signed(f"{ours}\n{others}Trusted: yes\n", "/etc/apt/sources.list.d/x.sources", ARCHIVE)

    assert after == f"{ours}Signed-By: {ARCHIVE.keyring}\n\n{others}"


def test_a_stanza_is_read_whatever_its_spaces() -> None:
    """Spaces before a colon are nothing to apt; a line of blanks, over which apt reads on, becomes an empty one."""
    before = "Types : deb\nURIs : http://m\nSuites : noble\nTrusted : yes\n \nTypes: deb\nSuites: ./\nTRUSTED\t: yes\n"

    after = signed(before, "/etc/apt/sources.list.d/x.sources", ARCHIVE)

    ours = f"Types : deb\nURIs : http://m\nSuites : noble\nSigned-By: {ARCHIVE.keyring}\n"
    assert after == f"{ours}\nTypes: deb\nSuites: ./\n"


def test_a_field_goes_on_over_lines() -> None:
    """Its suites are read wherever they stand, remarks between them too, and blind trust leaves nothing behind."""
    before = "Types: deb\nSuites:\n noble\n# noble-proposed\n noble-updates\nTrusted:\n yes\n"

    after = signed(before, "/etc/apt/sources.list.d/x.sources", ARCHIVE)

    ours = "Types: deb\nSuites:\n noble\n# noble-proposed\n noble-updates\n"
    assert after == f"{ours}Signed-By: {ARCHIVE.keyring}\n"


def test_what_is_signed_stays_as_it_is() -> None:
    """Ubuntu's own file is right from the start, and is not written."""
    played = Recorder(recorded("ubuntu-24.04")).play(Baseline(lab_node("titan-01.cellar")), stages=["install"])

    assert not [name for name in played.names if name.startswith("Signed sources")]


def test_debians_own_file_is_signed() -> None:
    """Debian's file names no key, and takes any key of the machine for good."""
    played = Recorder(recorded("debian-12")).play(Baseline(lab_node("titan-01.cellar")), stages=["install"])

    text = played.written("/etc/apt/sources.list")
    assert text.count("[signed-by=/usr/share/keyrings/debian-archive-keyring.gpg]") == 3


def test_files_are_told_apart_line_by_line() -> None:
    """Several files are read in one question, empty lines and all."""
    lines = ["/etc/apt/a.list:deb x y", "/etc/apt/a.list:", "/etc/apt/b.sources:Types: deb"]

    assert SourceFiles().process(lines) == {"/etc/apt/a.list": "deb x y\n\n", "/etc/apt/b.sources": "Types: deb\n"}
