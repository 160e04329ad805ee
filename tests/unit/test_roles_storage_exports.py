"""What the role `storage` makes of a machine that other machines mount from."""

from dataclasses import replace

from roles.storage.attached import shared
from roles.storage.exported import EXPORTS, SETTINGS, server_of
from tests.support.stored import SHARE


def test_exports_are_for_the_plans_blocks_and_root_is_nobody() -> None:
    """Whatever address else asks is refused; each has an id of its own name."""
    (exports, settings) = server_of([SHARE], by_kernel=True).files

    line = exports.text.splitlines()[1]
    assert line.startswith("/srv/home 192.168.40.0/22(rw,sync,root_squash,no_subtree_check,sec=sys,fsid=")
    assert "*" not in line
    assert {"vers2=n", "vers3=n", "vers4.0=n"} <= set(settings.text.splitlines())


def test_without_the_kernels_server_another_says_the_same() -> None:
    """In a container: by version 4 alone, for the same blocks, root nobody; everybody else nothing."""
    (conf,) = server_of([SHARE, replace(SHARE, store="data", path="/srv/data")], by_kernel=False).files

    assert conf.text.count("Clients = 192.168.40.0/22;") == 2
    assert "Squash = root_squash;" in conf.text
    assert "Access_Type = None;" in conf.text
    assert "Protocols = 4;" in conf.text


def test_a_share_without_clients_is_not_exported() -> None:
    """A line of exports(5) without a client would open the folder to everybody."""
    for by_kernel in (True, False):
        assert "/srv/home" not in server_of([replace(SHARE, clients=())], by_kernel=by_kernel).files[0].text


def test_another_share_moves_no_id() -> None:
    """Handles that clients hold stay good."""
    both = server_of([replace(SHARE, store="a", path="/srv/a"), SHARE], by_kernel=True).files[0].text

    assert server_of([SHARE], by_kernel=True).files[0].text.splitlines()[1] in both


def test_what_a_machine_exports_it_has_at_the_same_path() -> None:
    """A person's home is theirs on the file server too."""
    (unit,) = shared(SHARE).units()

    assert unit.name == "home.mount"
    assert "What=/srv/home\nWhere=/home\nType=none\nOptions=bind" in unit.text
    assert "WantedBy=local-fs.target" in unit.text


def test_the_server_is_started_anew_for_its_settings_alone() -> None:
    """Its clients would wait; another export it takes in as it runs."""
    server = server_of([SHARE], by_kernel=True)

    assert server.anew == {SETTINGS}
    assert server.told == {EXPORTS: "exportfs -ra"}
