"""What the role `storage` takes away: mounts and exports that left the fleet file, once nobody uses them."""

from dataclasses import replace

from roles.storage.attached import mounted
from roles.storage.exported import EXPORTS, GANESHA
from roles.storage.found import Finding, Found
from roles.storage.gone import gone
from roles.storage.guard import UNITS
from roles.storage.role import Storage
from tests.support.stored import HOME, played

LEFT = Found(
    {"home.mount": "/home", "home.automount": "/home", "data.mount": "/data", "data.automount": "/data"},
    {"/home": "nas.cellar.lab.internal:/srv/home", "/data": "nas.cellar.lab.internal:/srv/data"},
)
WANTED = frozenset({"home.mount", "home.automount"})


def test_a_mount_that_left_the_file_goes() -> None:
    """What would mount it again first, then the mount, then their files."""
    (due,) = gone((mounted(HOME),), WANTED, LEFT)

    assert due.name == "No /data any more"
    order = [word for command in due.commands for word in ("data.automount", "data.mount") if word in command]
    assert order == ["data.automount", "data.automount", "data.mount", "data.mount"]


def test_a_mount_in_use_stays_and_who_uses_it_is_told() -> None:
    """No job loses its files; the apply after its end takes it off."""
    (due,) = gone((mounted(HOME),), WANTED, replace(LEFT, users={"/data": ("python bob", "bash eve")}))

    assert due.name == "/data is to go, and stays while it is used by python bob, bash eve"
    assert due.commands == ("true",)


def test_a_path_with_another_server_is_mounted_anew() -> None:
    """Once nobody uses the old one."""
    moved = mounted(replace(HOME, server="nas-2.cellar.lab.internal"))
    busy = replace(LEFT, users={"/home": ("bash ada",)})

    (free,) = gone((moved,), WANTED | {"data.mount", "data.automount"}, LEFT)
    (used,) = gone((moved,), WANTED | {"data.mount", "data.automount"}, busy)

    assert free.commands == ("timeout 60 systemctl stop home.mount",)
    assert used.name.endswith("once it is not used any more by bash ada")


def test_a_node_that_is_as_planned_has_nothing_to_lose() -> None:
    """The guard's own units are wanted too."""
    found = Found(dict.fromkeys(UNITS, "") | dict.fromkeys(WANTED, "/home"), {"/home": mounted(HOME).source})

    assert list(gone((mounted(HOME),), WANTED | {*UNITS}, found)) == []


def test_exports_that_left_the_file_end() -> None:
    """With the server, whichever it was."""
    for path, service in ((EXPORTS, "nfs-server"), (GANESHA, "nfs-ganesha")):
        (step,) = played(Storage(), found=(f"exports:{path}",)).steps
        assert step.name == "Nothing is exported any more"
        assert service in step.commands[1]


def test_what_a_node_has_is_read_from_one_answer() -> None:
    """The uppermost mount of a path counts, and what only waits for its first use is none."""
    lines = (
        "unit:home.mount:/home",
        "unit:bedplate-storage-guard.timer:",
        "user:/home:ada bash",
        "source:/home:autofs:systemd-1",
        "source:/home:nfs4:nas:/srv/home",
        "source:/:ext4:/dev/vda1",
    )

    found = Finding().process(lines)

    assert found.units == {"home.mount": "/home", "bedplate-storage-guard.timer": ""}
    assert found.sources == {"/home": "nas:/srv/home", "/": "/dev/vda1"}
    assert found.told_users("/home") == "bash ada"
    assert not found.portmapper
