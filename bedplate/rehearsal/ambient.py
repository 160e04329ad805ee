"""Hides the AWS settings of this machine. Apart from the simulation, since it is needed before moto is imported."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

FILES = ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE")


@contextmanager
def no_ambient_aws() -> Iterator[None]:
    """Hide the AWS credentials, profiles and endpoints of the machine in this context, those in ~/.aws included."""
    ambient = {name: os.environ.pop(name) for name in list(os.environ) if name.startswith("AWS_")}
    os.environ |= dict.fromkeys(FILES, os.devnull)
    try:
        yield
    finally:
        for name in FILES:
            os.environ.pop(name, None)
        os.environ.update(ambient)
