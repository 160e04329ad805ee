"""The role `postgres`: the unit of each distribution, and what its program refuses before it changes anything."""

import subprocess
from pathlib import Path

import pytest

from bedplate.errors import InputError
from roles.base import file_text
from roles.postgres.role import Postgres
from tests.testlab.fakes.node import Recorder, recorded

LIMITS = "/etc/systemd/system/postgresql@.service.d/70-bedplate.conf"
_DEBIAN_13 = ("/etc/os-release", "ID=debian", "NAME=Debian", 'VERSION_ID="13"', "---")
_OTHER = ("/etc/os-release", "ID=debian", "NAME=Debian", 'VERSION_ID="14"', "---")


@pytest.mark.parametrize(("system", "major"), [("debian-12", 15), ("ubuntu-24.04", 16)])
def test_the_unit_is_that_of_the_distributions_version(system: str, major: int) -> None:
    """A restart after a change is before the start, which then has nothing to do."""
    played = Recorder(recorded(system)).play(Postgres(has_volume=True))

    assert f"postgresql@{major}-main.service" in str(played.step("Start PostgreSQL").commands)
    assert played.names.index("Restart PostgreSQL") < played.names.index("Start PostgreSQL")


def test_an_unknown_distribution_is_refused() -> None:
    """Nobody knows its version of PostgreSQL; Debian 13 is known."""
    facts = recorded("debian-12")
    played = Recorder(facts.but({"server.LinuxDistribution": _DEBIAN_13})).play(Postgres(has_volume=False))

    assert "postgresql@17-main.service" in str(played.step("Start PostgreSQL").commands)
    with pytest.raises(InputError, match="Debian 14"):
        Recorder(facts.but({"server.LinuxDistribution": _OTHER})).play(Postgres(has_volume=False))


def test_a_start_that_fails_is_tried_again() -> None:
    """Debian's unit ignores it, and may then wait for a process that was killed; a recovery has a day."""
    rows = Recorder(recorded("debian-12")).play(Postgres(has_volume=True)).written(LIMITS).splitlines()
    starts = [row for row in rows if row.startswith("ExecStart=")]

    assert starts == [
        "ExecStart=",
        "ExecStart=/usr/bin/pg_ctlcluster --skip-systemctl-redirect %i start -- --timeout=86400",
    ]


@pytest.mark.parametrize("has_volume", [True, False])
def test_a_hub_with_a_volume_needs_its_mount(has_volume: bool) -> None:  # noqa: FBT001  pytest passes it by name
    """At a site the data is in a folder of the machine."""
    text = Recorder(recorded("debian-12")).play(Postgres(has_volume=has_volume)).written(LIMITS)

    assert ("AssertPathIsMountPoint=/srv/hub" in text) is has_volume
    assert "RequiresMountsFor=/srv/hub" in text


@pytest.mark.parametrize(
    ("folders", "reason"),
    [
        (("17",), "the records are of PostgreSQL 17, and this machine has 16: use its image"),
        (("9", "15"), "/15 has not the programs of PostgreSQL 15"),
        # A cluster that a power loss left incomplete is none.
        (("14", "15.new"), "/14 has not the programs of PostgreSQL 14"),
    ],
    ids=["newer", "newest of two", "incomplete"],
)
def test_data_of_another_version_is_kept_if_it_cannot_be_moved(
    tmp_path: Path, folders: tuple[str, ...], reason: str
) -> None:
    """No cluster is made beside records that this machine cannot read."""
    for name in folders:
        (tmp_path / "postgresql" / name / "main").mkdir(parents=True)
        (tmp_path / "postgresql" / name / "main/PG_VERSION").write_text(f"{name.removesuffix('.new')}\n")
    text = file_text("postgres/database").replace("/srv/hub", str(tmp_path)).replace("-o postgres -g postgres", "")
    text = text.replace("/run/bedplate-database", str(tmp_path / "run"))

    done = subprocess.run(
        ["bash", "-c", text, "database", "16-main"], capture_output=True, text=True, timeout=20, check=False
    )

    assert done.returncode == 1
    assert reason in done.stderr
    assert not (tmp_path / "postgresql/16").exists()
