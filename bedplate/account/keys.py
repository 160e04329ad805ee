"""Private keys of the VPN as encrypted SSM parameters.

The only data in the account that is written outside Pulumi: no state file, log or plan may hold a private key.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from bedplate.account.door import Door
from bedplate.account.trouble import NotThere

# Not a valid fleet name: `/<fleet>/*`, which nodes may read, never covers a key.
_PREFIX = "vpn_keys"


@dataclass(frozen=True, slots=True)
class ParameterKeys:
    """SSM parameters `/vpn_keys/<fleet>/<name>` in the home region, under the fleet's own key."""

    door: Door
    region: str
    fleet: str

    def read(self, name: str) -> str | None:
        """Return a text, or None where there is none; raises BedplateError as the door does."""
        try:
            reply = self.door.call("ssm", self.region, "get_parameter", Name=self._path(name), WithDecryption=True)
        except NotThere:
            return None
        return str(reply["Parameter"]["Value"])

    def write(self, texts: Mapping[str, str]) -> None:
        """Keep texts, each in place of what had its name."""
        for name, text in texts.items():
            self.door.call(
                "ssm",
                self.region,
                "put_parameter",
                Name=self._path(name),
                Value=text,
                Type="SecureString",
                KeyId=key_alias(self.fleet),
                Overwrite=True,
            )

    def _path(self, name: str) -> str:
        return f"/{_PREFIX}/{self.fleet}/{name}"


def key_alias(fleet: str) -> str:
    """Return the alias of the key that the stack `shared` makes for parameters."""
    return f"alias/{fleet}-parameters"
