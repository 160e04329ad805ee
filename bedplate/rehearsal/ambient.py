"""The AWS settings of whoever runs a rehearsal: variables and configuration files, which it must never see."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

FILES = ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE")


@contextmanager
def no_ambient_aws() -> Iterator[None]:
    """Hide credentials, profiles and endpoints for as long as the context lasts, those in ~/.aws included."""
    ambient = {name: os.environ.pop(name) for name in list(os.environ) if name.startswith("AWS_")}
    os.environ |= dict.fromkeys(FILES, os.devnull)
    try:
        yield
    finally:
        for name in FILES:
            os.environ.pop(name, None)
        os.environ.update(ambient)
