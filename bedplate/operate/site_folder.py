"""The folder from which a machine of a site configures itself: script, bundle, node document and cloud-init seed."""

import shlex
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from bedplate.bundle import BundleTarget, RingState, Source, build_bundle, pack, user_cache
from bedplate.errors import InputError
from bedplate.files import os_errors_as_machine_errors
from bedplate.foreign import parse_json
from bedplate.nodes.apply import NodeError, NodeErrorKind, Target
from bedplate.nodes.bootstrap import site_script
from bedplate.nodes.remote import run
from bedplate.plan.node_document import node_document
from bedplate.plan.nodes import NodePlan
from bedplate.spec.groups import Ring

SOURCE = "/var/lib/bedplate/source"
"""The folder on a machine that got it over SSH."""
# cloud-init reads a disk with this label, or the seed in the image, and copies only these two files from it.
_LABEL, _SEED, _MOUNT = "CIDATA", "/var/lib/cloud/seed/nocloud", "/run/bedplate-seed"
_FACTS = "import json, os, sys; print(json.dumps(['%d.%d' % sys.version_info[:2], os.uname().machine]))"
_SECONDS, _BY_HAND = 600, "try `bedplate ssh {node}`"


def script_name(node: NodePlan) -> str:
    """Return the name of the bootstrap script in the folder."""
    return f"{node.host}.sh"


def site_files(node: NodePlan, parts: tuple[BundleTarget, ...]) -> Mapping[str, bytes]:
    """Return the files of the folder, with the wheels of these targets. Raises MachineError."""
    cache = user_cache()
    bundle = build_bundle(cache, parts)
    # A machine refuses a lower sequence than it has accepted.
    ring = RingState(bundle.hash, int(time.time()))
    texts = {
        script_name(node): site_script(node),
        f"rings/{Ring.STABLE.value}.json": f"{ring.text}\n",
        f"bundles/{bundle.hash}.json": bundle.text,
        f"nodes/{node.name}.json": node_document(node),
        "meta-data": f"instance-id: {node.name}\nlocal-hostname: {node.host}\n",
        "user-data": user_data(node),
    }
    return {name: text.encode() for name, text in texts.items()} | {
        f"blobs/{name}": cache.read(name) for name in bundle.blobs
    }


def user_data(node: NodePlan) -> str:
    """Return user data that runs the bootstrap of the disk or seed from which cloud-init has it."""
    script = shlex.quote(script_name(node))
    return f"""#!/bin/bash
set -eu
source={_SEED}
if device=$(blkid --label {_LABEL} || blkid --label {_LABEL.lower()}); then
  source={_MOUNT}
  mkdir -p $source
  mountpoint -q $source || mount --read-only "$device" $source
fi
exec bash $source/{script}
"""


def write_folder(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write the files into a new or empty folder. Raises InputError for another, and MachineError."""
    with os_errors_as_machine_errors(folder, "write"):
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise InputError("is not an empty folder", where=str(folder), fix="name a new folder")
        for name, data in files.items():
            file = folder / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(data)


def push_folder(target: Target) -> str:
    """Send the folder to a machine of a site; return its bootstrap script there. Raises NodeError, and MachineError."""
    try:
        python, architecture = parse_json(run(target, "python3", "-c", _FACTS, timeout=_SECONDS, fix=_BY_HAND))
    except ValueError:
        raise NodeError(NodeErrorKind.FAILED, "cannot read its version of Python", "install python3 on it") from None
    with tempfile.TemporaryDirectory(prefix="bedplate-") as name:
        folder, files = Path(name), site_files(target.node, (BundleTarget(python, architecture),))
        write_folder(folder, files)
        archive = pack(Source(folder, tuple(files)))
    unpack = f"rm -rf {SOURCE} && install -d -m 0700 {SOURCE} && tar -xz -C {SOURCE}"
    run(target, "sudo", "-n", "sh", "-c", unpack, stdin=archive, timeout=_SECONDS, fix=_BY_HAND)
    return f"{SOURCE}/{script_name(target.node)}"
