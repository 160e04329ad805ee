"""The bootstrap of a machine: one script for the cloud, as user data, and for sites, to run at the console."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from shlex import quote

from bedplate.errors import InputError
from bedplate.nodes.ssh import INITIAL_ACCOUNT
from bedplate.plan.nodes import NodePlan, Platform

PROGRAM = "/usr/local/lib/bedplate/bootstrap"
"""The script on a machine."""
OWN_RUN = "the configuration run of this machine"
"""Who locks a machine while it configures itself."""
_SCRIPT = Path(__file__).with_name("bootstrap.sh")
_COMMENT = re.compile(r"^ *#.*\n", re.MULTILINE)
_SITE_STEPS = (
    "install_programs",
    "take_site_name",
    "add_first_account",
    "fetch",
    "start_configuration",
    "print_commands",
)


def user_data_script(steps: Sequence[str], values: Mapping[str, str]) -> str:
    """Return the script of an EC2 instance, without comments: an edited comment changes no launch template."""
    return "\n".join(("#!/bin/bash", *_constants(Platform.CLOUD, steps, values), _COMMENT.sub("", _text())))


def site_script(node: NodePlan) -> str:
    """Return the script of a site's machine; InputError for an EC2 instance, or without an administrator."""
    if node.platform is Platform.CLOUD:
        fix = "an EC2 instance needs no script: Auto Scaling starts it, and cloud-init configures it"
        raise InputError(f"{node.name} is an EC2 instance", fix=fix)
    if not node.accounts.admin_keys:
        raise InputError("no administrator in the fleet file", fix="set `admin: true` for one of `people`")
    values = {
        "HOST_NAME": node.full_name,
        "DOCUMENT": node.name,
        "RING": "stable",
        "ACCOUNT": INITIAL_ACCOUNT,
        "ADMIN_KEYS": node.accounts.admin_keys_file.rstrip("\n"),
    }
    return "\n".join(("#!/bin/bash", *_constants(Platform.METAL, _SITE_STEPS, values), _text()))


def _constants(platform: Platform, steps: Sequence[str], values: Mapping[str, str]) -> list[str]:
    constants = {"PLATFORM": str(platform), "STEPS": " ".join(steps), **values}
    return [f"readonly {name}={quote(value)}" for name, value in constants.items()]


def _text() -> str:
    return _SCRIPT.read_text(encoding="utf-8")
