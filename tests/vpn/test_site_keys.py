"""Keys of random bytes in the real parser."""

import os
import subprocess
from pathlib import Path

from tests.testlab.fakes.daemons import vici_socket
from tests.testlab.keys.authority import KEYS, keyed, random_keys
from vpn.sites.files import STANDARD, connections_of, strongswan_conf_of


def test_swanctl_reads_keys_unchanged(tmp_path: Path) -> None:
    """Of 10,000 random keys, swanctl sends each to the daemon unchanged."""
    keys = random_keys(KEYS)
    for file in (strongswan_conf_of(STANDARD), connections_of(keyed(keys), STANDARD)):
        (tmp_path / file.path.name).write_text(file.text)
    env = {**os.environ, "SWANCTL_DIR": str(tmp_path), "STRONGSWAN_CONF": str(tmp_path / "strongswan.conf")}

    with vici_socket(tmp_path) as heard:
        subprocess.run(
            ["/usr/sbin/swanctl", "--load-creds", "--noprompt", "--uri", heard.uri],
            env=env,
            check=True,
            capture_output=True,
            timeout=120,
        )

    loaded_keys = {
        values["id"][0].decode(): values["data"][0] for name, values in heard.commands if name == "load-shared"
    }
    assert loaded_keys == {f"ike-t{number}": key for number, key in enumerate(keys)}
