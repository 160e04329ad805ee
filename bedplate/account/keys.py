"""Private keys of the VPN in the account instead of on a disk: as encrypted parameters, or as secrets.

The one thing of the account that is written outside Pulumi: no state file, log or plan may hold a private key.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from bedplate.account.door import Door
from bedplate.account.trouble import NotThere

# No fleet can be called so, so that what nodes may read, `/<fleet>/*`, never covers a key.
_PREFIX = "vpn_keys"
PARAMETERS, SECRETS = "parameters", "secrets"


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


@dataclass(frozen=True, slots=True)
class SecretKeys:
    """Secrets `vpn_keys/<fleet>/<name>` in the home region, under the fleet's own key."""

    door: Door
    region: str
    fleet: str

    def read(self, name: str) -> str | None:
        """Return a text, or None where there is none; raises BedplateError as the door does."""
        try:
            reply = self.door.call("secretsmanager", self.region, "get_secret_value", SecretId=self._path(name))
        except NotThere:
            return None
        return str(reply["SecretString"])

    def write(self, texts: Mapping[str, str]) -> None:
        """Keep texts, each as the newest version of the secret of its name."""
        for name, text in texts.items():
            path = self._path(name)
            try:
                self.door.call("secretsmanager", self.region, "put_secret_value", SecretId=path, SecretString=text)
            except NotThere:
                made = {"Name": path, "SecretString": text, "KmsKeyId": key_alias(self.fleet)}
                self.door.call("secretsmanager", self.region, "create_secret", **made)

    def _path(self, name: str) -> str:
        return f"{_PREFIX}/{self.fleet}/{name}"


def key_alias(fleet: str) -> str:
    """Return the alias of the key that the stack `shared` makes for parameters."""
    return f"alias/{fleet}-parameters"
