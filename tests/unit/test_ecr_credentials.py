"""The credential provider of kubelet for ECR, as a process with a metadata service and an endpoint of ECR."""

import json
import os
import subprocess
import tomllib
from base64 import b64encode
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest
from botocore.credentials import Credentials

from bedplate.catalog.catalog import load_addons
from roles.base import file_text
from roles.kubernetes.role import credential_providers
from tests.testlab.fakes.aws import Request, Scope, metadata_service, serving, signed_for

KEYS = Credentials("ASIAFAKE", "secret/of+instance", "token==")
ROLE = "iam/security-credentials/"
FACTS = {
    ROLE: "lab-kubernetes",
    f"{ROLE}lab-kubernetes": json.dumps(
        {"AccessKeyId": KEYS.access_key, "SecretAccessKey": KEYS.secret_key, "Token": KEYS.token}
    ),
}
REGISTRY = "111122223333.dkr.ecr.eu-north-1.amazonaws.com"


@dataclass
class Ecr:
    """ECR, with the scopes of the signatures that it has accepted."""

    url: str = ""
    scopes: list[Scope] = field(default_factory=list)


@pytest.fixture
def ecr() -> Iterator[Ecr]:
    """Yield ECR, which answers the instance only."""
    ecr = Ecr()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            headers = {name.title(): value for name, value in self.headers.items()}
            scope = signed_for(Request("POST", self.path, headers, body), KEYS)
            ecr.scopes += [scope] if scope else []
            token = b64encode(b"AWS:a password").decode()
            text = json.dumps({"authorizationData": [{"authorizationToken": token}]})
            self.send_response(200 if scope and headers["X-Amz-Target"].endswith(".GetAuthorizationToken") else 400)
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *args: object) -> None:
            """Keep the tests' output clean."""

    with serving(Handler) as ecr.url:
        yield ecr


def provide(image: str, url: str, facts: dict[str, str], *words: str) -> "subprocess.CompletedProcess[str]":
    """Run the program as kubelet does."""
    request = {
        "apiVersion": "credentialprovider.kubelet.k8s.io/v1",
        "kind": "CredentialProviderRequest",
        "image": image,
    }
    with metadata_service(facts) as metadata:
        return subprocess.run(
            ["python3", "-IB", "-c", file_text("kubernetes/ecr-credentials"), *words],
            input=json.dumps(request),
            env={**os.environ, "AWS_EC2_METADATA_SERVICE_ENDPOINT": metadata, "AWS_ENDPOINT_URL_ECR": url},
            capture_output=True,
            text=True,
            check=False,
        )


def test_the_instance_gets_the_credentials_of_a_registry(ecr: Ecr) -> None:
    """The request is signed for the registry's region, and kubelet keeps the answer for half of its life."""
    done = provide(f"{REGISTRY}/train:1", ecr.url, FACTS)

    answer = json.loads(done.stdout)
    assert answer["auth"] == {REGISTRY: {"username": "AWS", "password": "a password"}}
    assert (answer["kind"], answer["cacheDuration"]) == ("CredentialProviderResponse", "6h0m0s")
    assert ecr.scopes == [Scope("eu-north-1", "ecr")]


@pytest.mark.parametrize(
    ("image", "facts", "message"),
    [
        ("registry.k8s.io/pause:3.10", FACTS, "not an image of ECR"),
        (f"evil.example/{REGISTRY}/train:1", FACTS, "not an image of ECR"),
        (f"{REGISTRY}.evil.example/train:1", FACTS, "not an image of ECR"),
        (f"{REGISTRY}/train:1", {}, "no credentials for ECR: HTTP Error 404"),
    ],
    ids=["other registry", "path", "other domain", "no role"],
)
def test_a_failure_is_one_line(image: str, facts: dict[str, str], message: str, ecr: Ecr) -> None:
    """Another registry gets no credentials, and kubelet logs the reason."""
    done = provide(image, ecr.url, facts)

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(message)
    assert not ecr.scopes


def test_a_bake_pulls_an_image_with_a_login_in_a_file(
    ecr: Ecr, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Arguments of a process are for everybody on the machine; the file is gone when the pull has ended."""
    script = f'#!/bin/sh\nprintf "%s " "$@" >{tmp_path}/words\ncat "$6"/*/hosts.toml >{tmp_path}/hosts\nexit 3\n'
    (tmp_path / "ctr").write_text(script)
    (tmp_path / "ctr").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    image = f"{REGISTRY}/lab/torch@sha256:{'0' * 64}"

    done = provide("", ecr.url, FACTS, "pull", image)

    assert done.returncode == 3
    words = (tmp_path / "words").read_text().split()
    assert (words[:3], words[-1]) == (["-n", "k8s.io", "images"], image)
    assert not Path(words[-2]).exists()
    hosts = tomllib.loads((tmp_path / "hosts").read_text())["host"]
    login = f"Basic {b64encode(b'AWS:a password').decode()}"
    assert hosts == {f"https://{REGISTRY}": {"header": {"authorization": login}}}


def test_images_of_add_ons_in_ecr_are_covered() -> None:
    """The provider is asked for each of them."""
    (provider,) = credential_providers()["providers"]
    images = [image for addon in load_addons() for image in addon.images if ".dkr.ecr." in image]

    assert images
    assert provider["matchImages"][0] == "*.dkr.ecr.*.amazonaws.com"
