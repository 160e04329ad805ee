"""Keys of any bytes: what is rendered is read back as it was, whatever its bytes mean to a parser."""

from tests.support.many_keys import KEYS, keyed, random_keys
from tests.support.settings_text import read_settings
from vpn.sites.charon import connections_of
from vpn.sites.rendered import STANDARD


def test_keys_are_read_back() -> None:
    """Of 10,000 keys of random bytes, each is read back as it was by a reader of our own."""
    keys = random_keys(KEYS)

    secrets = read_settings(connections_of(keyed(keys), STANDARD).text)["secrets"]

    told = [bytes.fromhex(secrets[f"ike-t{number}"]["secret"].removeprefix("0x")) for number in range(KEYS)]
    assert told == keys
