"""How a file server serves what it exports: folders that are there, and a daemon that knows of them."""

from collections.abc import Mapping

from pyinfra.api.operation import OperationMeta
from pyinfra.operations import server, systemd
from pyinfra.operations.util import any_changed

from bedplate.plan.node import Share
from roles.storage.attached import HOMES
from roles.storage.exported import Server


def serve(by: Server, changed: Mapping[str, OperationMeta]) -> None:
    """Let the server run with its settings, and know what it exports; otherwise its clients notice nothing."""
    systemd.service(name=f"{by.service} runs", service=by.service, running=True, enabled=True)
    for file in by.files if changed else ():
        when = any_changed(changed[file.path])
        if file.path in by.anew:
            systemd.service(name=f"{by.service} anew", service=by.service, restarted=True, _if=when)
        else:
            server.shell(name=f"{file.name} are known", commands=[by.told[file.path]], _if=when)


def folder(share: Share) -> str:
    """Return what makes a folder: of homes, for root to make them in; of anything else, for everybody to write to."""
    mode = "755" if share.mount == HOMES else "1777"
    return f"[ -d {share.path} ] || install -d -m {mode} {share.path}"
