"""`bedplate` with a simulated AWS account: `python -m tests.testlab.engine.command up --yes`, and its settings.

Its calls to STS and IAM are answered by moto, in a new account for each command. Quotas and images, which moto does not
have, are neither read nor recorded; machines are not configured.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from moto import mock_aws

from bedplate.account.client import RegionResults
from bedplate.cli import run
from bedplate.operate import Result, deploy, machines
from tests.testlab.run import need_program

ACCOUNT = "210987654321"
ROOT = Path(__file__).parents[3]


@contextmanager
def limited_account() -> Iterator[None]:
    """Ask the account only what moto has."""
    quotas: RegionResults[Any] = RegionResults({}, {})
    with (
        patch.object(deploy, "read_quotas", lambda _account, _needs: quotas),
        patch.object(deploy, "check_volume_keys", lambda _account, _plan: None),
        patch.object(deploy, "unrecorded_images", lambda _plan, _catalog: ()),
        # moto's account has no machines, so it needs no bundle.
        patch.object(deploy, "deliver_to_new_region", lambda *_: None),
        patch.object(machines, "ready_machines", lambda *_: Result((), {})),
        # moto gives the other service-linked roles names of its own.
        patch.object(
            deploy, "service_roles", lambda _plan: {"AWSServiceRoleForAutoScaling": "autoscaling.amazonaws.com"}
        ),
    ):
        yield


@contextmanager
def simulated_account() -> Iterator[None]:
    """Answer the account's calls of the commands that deploy."""
    with (
        patch.dict(os.environ, MOTO_ACCOUNT_ID=ACCOUNT, AWS_ACCESS_KEY_ID="x", AWS_SECRET_ACCESS_KEY="x"),  # noqa: S106  moto has no secrets
        mock_aws(),
        limited_account(),
    ):
        yield


@contextmanager
def simulated_provider(folder: Path, *provider: str) -> Iterator[None]:
    """Set the environment of Pulumi's real engine: an empty backend in the folder, and an AWS provider.

    `provider` is the module that serves it, with its arguments.
    """
    need_program("pulumi")
    need_program("pulumi-language-python")
    (folder / "state").mkdir()
    command = [sys.executable, "-m", *provider]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as server:
        assert server.stdout
        try:
            settings = {
                "PYTHONPATH": str(ROOT),
                "HOME": str(folder),
                "PULUMI_HOME": str(folder / "pulumi"),
                "PULUMI_BACKEND_URL": f"file://{folder / 'state'}",
                "PULUMI_CONFIG_PASSPHRASE": "x",
                "PULUMI_SKIP_UPDATE_CHECK": "true",
                "PULUMI_DEBUG_PROVIDERS": f"aws:{server.stdout.readline().strip()}",
            }
            with patch.dict(os.environ, settings):
                yield
        finally:
            server.kill()


@contextmanager
def simulated_aws(folder: Path, *provider: str) -> Iterator[None]:
    """Set the environment of Pulumi's real engine, with an empty AWS account.

    `provider` is the module that serves it, with its first arguments.
    """
    module = provider or ("tests.testlab.engine.provider",)
    with simulated_provider(folder, *module, "0", ACCOUNT), simulated_account():
        yield


if __name__ == "__main__":
    with simulated_account():
        sys.exit(run(sys.argv[1:]))
