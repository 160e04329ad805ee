"""No test reaches a network, whatever it runs and wherever it runs."""

import os
import socket
import subprocess
import sys

import pytest

ASK_AWS = """
import boto3
from botocore.config import Config
once = Config(retries={"total_max_attempts": 1}, connect_timeout=2)
session = boto3.session.Session("key", "secret")
session.client("sts", "us-east-1", config=once).get_caller_identity()
"""


def test_a_connection_to_another_machine_fails_the_test() -> None:
    """192.0.2.1 belongs to nobody, so not even a broken guard would disturb anyone."""
    with pytest.raises(pytest.fail.Exception, match=r"would have reached 192\.0\.2\.1"):
        socket.create_connection(("192.0.2.1", 443), timeout=1)


def test_a_name_is_not_even_looked_up() -> None:
    """A question to a name server is a way out, too."""
    with pytest.raises(pytest.fail.Exception, match=r"would have reached sts\.amazonaws\.com"):
        socket.getaddrinfo("sts.amazonaws.com", 443)


def test_this_machine_can_be_reached() -> None:
    """Tests talk to servers that they start themselves."""
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        assert client.getpeername() == server.getsockname()


def test_a_child_that_calls_aws_is_turned_away() -> None:
    """The guard of this process is not in its children: there a proxy that leads nowhere stands in the way."""
    ended = subprocess.run([sys.executable, "-c", ASK_AWS], capture_output=True, text=True, check=False)

    assert "ProxyConnectionError" in ended.stderr


def test_no_test_sees_the_settings_of_whoever_runs_it() -> None:
    """A profile or key of theirs would make a test pass here and fail there, or worse."""
    assert {name for name in os.environ if name.startswith("AWS_")} == {
        "AWS_CONFIG_FILE",
        "AWS_EC2_METADATA_DISABLED",
        "AWS_SHARED_CREDENTIALS_FILE",
    }
