"""Secrets are known by their issuers' marks, and what merely resembles one is left alone."""

import pytest

from bedplate.checks.secret import secrets_in

# Made of the issuers' marks and of letters without meaning.
SECRETS = {
    "a private key": "-----BEGIN OPENSSH PRIVATE KEY-----",
    "a PuTTY key": "PuTTY-User-Key-File-3: ssh-ed25519",
    "an OpenVPN static key": "-----BEGIN OpenVPN Static key V1-----",
    "an age key": "AGE-SECRET-KEY-1QQQQQQQQ",
    "an AWS access key": "AKIAIOSFODNN7EXAMPLE",
    "an AWS session key": "ASIAIOSFODNN7EXAMPLE",
    "an AWS secret access key": "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
    "a GitHub token": "ghp_" + "aB3" * 12,
    "a GitLab token": "glpat-" + "aB3-_" * 4,
    "a Slack token": "xoxb-1234567890-ab",
    "a Hugging Face token": "hf_" + "aB" * 17,
    "an API key": "sk-" + "aB3" * 8,
    "a Google API key": "AIza" + "aB3-_" * 7,
    "an npm token": "npm_" + "aB3" * 12,
    "a PyPI token": "pypi-" + "aB3" * 8,
    "a Pulumi token": "pul-" + "0af3" * 10,
    "a JSON web token": "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.c2ln",
    "a password in an address": "postgres://ada:hunter2@db.lab.internal/x",
}
HARMLESS = (
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl ada@laptop",
    "sk-ssh-ed25519@openssh.com AAAAGnNrLXNzaC1lZDI1NTE5QG9wZW5zc2guY29tAAAAIA== ada@token",
    "sk-ecdsa-sha2-nistp256@openssh.com AAAA ada@token",
    "sk-learn-benchmarks-on-cpu-machines",
    "da39a3ee5e6b4b0d3255bfef95601890afd80709",
    "https://lab.example:8443/ada@x",
    "cr-0123456789abcdef0",
    "AKIA",
)


@pytest.mark.parametrize("kind", SECRETS)
def test_a_secret_is_known_by_its_mark(kind: str) -> None:
    """Wherever it stands in a text; its kind is told, with where it starts."""
    found = list(secrets_in(f"key: {SECRETS[kind]} end"))

    assert kind in {secret.kind for secret in found}
    assert all(secret.start >= 5 for secret in found)


@pytest.mark.parametrize("text", HARMLESS)
def test_what_is_no_secret_is_left_alone(text: str) -> None:
    """Public keys, hashes, names and addresses belong in a fleet file."""
    assert list(secrets_in(text)) == []
