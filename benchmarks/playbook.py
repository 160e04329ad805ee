"""An Ansible playbook that does what our roles do on a machine: a task for each operation.

What Ansible has no module for, or what is worked out on the machine, becomes the cheapest task that it knows (`command:
true`): that favours Ansible. Files and folders are `copy` and `file`, packages `apt`, services `systemd_service`.
"""

import io
import json
import os
import sys
from collections.abc import Iterator, Mapping
from inspect import getclosurevars, signature
from pathlib import Path
from typing import Any

from pyinfra.api.state import StateStage
from pyinfra.context import ctx_state

from bedplate.nodes.order import Target
from bedplate.plan.node import NodePlan
from roles.catalog import roles_of
from roles.engine.crew import NodeHost, Watch, assemble
from roles.engine.foretelling import name_of
from roles.engine.line import Opening
from roles.engine.work import Work

Task = dict[str, Any]
_CHEAPEST: Task = {"ansible.builtin.command": "true", "changed_when": False}


def playbook(node: NodePlan, argv: tuple[str, ...], hosts: str = "all") -> str:
    """Return the playbook of a machine, after a look at it; JSON, which is YAML."""
    state = assemble((Target(node, argv),), Opening("none", "bench"))
    (host,) = state.crew
    work = Work(state, host, lambda _: None, roles_of)
    with ctx_state.use(state):
        state.set_stage(StateStage.Prepare)
        work.open(lambda: False)
        work.plan(None)
    tasks = [_named(state, host, key) for key in host.op_hash_order]
    work.close()
    tasks.insert(0, _folders(tasks))
    return json.dumps([{"hosts": hosts, "become": True, "gather_facts": True, "tasks": tasks}], indent=1)


def _named(state: Watch, host: NodeHost, key: str) -> Task:
    kept = getclosurevars(state.get_op_data_for_host(host, key).command_generator).nonlocals
    given = signature(kept["func"]).bind(*kept["args"], **kept["kwargs"]).arguments
    kind = f"{kept['func'].__module__.rpartition('.')[2]}.{kept['func'].__name__}"
    name = name_of(state, host, key)
    return {"name": name.replace("{", "(").replace("}", ")"), **next(_task(kind, given), _CHEAPEST)}


def _task(kind: str, given: Mapping[str, Any]) -> Iterator[Task]:
    match kind:
        case "shipped._place":
            file = given["file"]
            yield _copy(file.path, file.text, f"0{file.mode}")
        case "files.put" if isinstance(given["src"], io.StringIO):
            yield _copy(given["dest"], given["src"].getvalue(), f"0{given.get('mode') or 644}")
        case "files.directory":
            yield {"ansible.builtin.file": {"path": given["path"], "state": "directory"}}
        case "files.link" if given.get("target"):
            link = {"path": given["path"], "src": given["target"], "state": "link", "force": True}
            yield {"ansible.builtin.file": link}
        case "apt.packages":
            yield {"ansible.builtin.apt": {"name": list(given["packages"]), "install_recommends": False}}
        case "systemd.service" if given.get("running") and not given.get("restarted"):
            yield {"ansible.builtin.systemd_service": {"name": given["service"], "state": "started"}}


def _folders(tasks: list[Task]) -> Task:
    """Return the task that makes the folders of files: `copy` makes none, our operations make their own."""
    files = [task["ansible.builtin.copy"]["dest"] for task in tasks if "ansible.builtin.copy" in task]
    folders = " ".join(sorted({str(Path(file).parent) for file in files}))
    return {"name": "Folders", "ansible.builtin.command": f"mkdir -p {folders}", "changed_when": False}


def _copy(path: str, text: str, mode: str) -> Task:
    # Ansible would read its own brackets in what is only a text.
    return {"ansible.builtin.copy": {"dest": path, "content": f"{{% raw %}}{text}{{% endraw %}}", "mode": mode}}


def main() -> None:
    """Print the playbook of the machine that the arguments name: a fleet file, a name, an ssh configuration."""
    from bedplate.catalog import load_catalog  # noqa: PLC0415  for this program alone
    from bedplate.cli.opening import opened, planned  # noqa: PLC0415
    from bedplate.plan.nodes import node_of  # noqa: PLC0415

    file, name, config = sys.argv[1:]
    node = node_of(planned(opened(Path(file))), name, load_catalog())
    sys.stdout.write(playbook(node, ("ssh", "-F", config, name)))
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
