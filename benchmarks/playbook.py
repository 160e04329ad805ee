"""An Ansible playbook that does what our roles do on a machine: a task for each operation, with the same commands.

It holds for every machine of an inventory that gives each its own `address`. As people write them: files are `copy` and
`file`, packages `apt`, services `systemd_service`; what answers a change waits for it (`when`), and what is done once
says what it leaves (`creates`), the cheapest look that Ansible has.
"""

import io
import json
import os
import re
import sys
from collections.abc import Iterator, Mapping
from inspect import getclosurevars, signature
from pathlib import Path
from typing import Any

from pyinfra.api.state import StateOperationHostData, StateStage
from pyinfra.context import ctx_state

from bedplate.nodes.order import Target
from bedplate.plan.node import NodePlan
from roles.catalog import roles_of
from roles.engine.crew import NodeHost, Watch, assemble
from roles.engine.foretelling import name_of
from roles.engine.line import Opening
from roles.engine.work import Work

Task = dict[str, Any]
_DONE = "/var/lib/once"
"""Holds a file for each command that was run once."""
_RAW, _END = "{% raw %}", "{% endraw %}"


def playbook(node: NodePlan, argv: tuple[str, ...], hosts: str = "all") -> str:
    """Return the playbook of a machine, after a look at it; JSON, which is YAML."""
    state = assemble(Target(node, argv), Opening("none", "bench"))
    host = state.node
    work = Work(state, host, lambda _: None, roles_of)
    with ctx_state.use(state):
        state.set_stage(StateStage.Prepare)
        work.open(lambda: False)
        work.plan(None)
    work.close()
    tasks = [task for number in range(len(host.op_hash_order)) for task in _tasks(state, host, number)]
    # Once more behind the packages: installing them takes empty folders of units away.
    behind = max(at for at, task in enumerate(tasks) if "ansible.builtin.apt" in task) + 1
    tasks[behind:behind] = [_folders(tasks)]
    tasks.insert(0, _folders(tasks))
    told = [_for_any(task, node) for task in tasks]
    return json.dumps([{"hosts": hosts, "become": True, "gather_facts": True, "tasks": told}], indent=1)


def _tasks(state: Watch, host: NodeHost, number: int) -> Iterator[Task]:
    """Yield the task of an operation, under its name, and what is remembered of it; none where there is none."""
    key = host.op_hash_order[number]
    kept = getclosurevars(state.get_op_data_for_host(host, key).command_generator).nonlocals
    given = signature(kept["func"]).bind(*kept["args"], **kept["kwargs"]).arguments
    kind = f"{kept['func'].__module__.rpartition('.')[2]}.{kept['func'].__name__}"
    name = name_of(state, host, key).replace("{", "(").replace("}", ")")
    when = _when(state, host, key)
    register = {"register": f"op{number}"}
    if kind == "server.shell":
        yield {"name": name, **_shell(number, given["commands"], once=when is None), **register, **(when or {})}
        return
    found = next(_task(kind, given), None)
    if found is None:
        sys.exit(f"no task for {kind}, {name}: {given}")
    yield {"name": name, **found, **register, **(when or {})}


def _when(state: Watch, host: NodeHost, key: str) -> Task | None:
    """Return what an operation waits for: one of the others' changes; None where it waits for nothing."""
    condition = state.get_op_data_for_host(host, key).global_arguments.get("_if")
    metas = getclosurevars(condition).nonlocals.get("args") if callable(condition) else None
    if metas is None:
        return None
    data: list[StateOperationHostData] = [state.get_op_data_for_host(host, each) for each in host.op_hash_order]
    numbers = [at for at, each in enumerate(data) if any(each.operation_meta is meta for meta in metas)]
    return {"when": " or ".join(f"op{at} is changed" for at in numbers)}


def _shell(number: int, commands: list[str], *, once: bool) -> Task:
    # Whoever applies with Ansible confirms a trial at once, over the connection that stands.
    lines = [line.replace("begin 120", "begin 120 && bedplate-trial confirm") for line in commands]
    if not once:
        return {"ansible.builtin.shell": " && ".join(lines)}
    done = f"{_DONE}/{number}"
    words = {"cmd": " && ".join((*(f"( {line} )" for line in lines), f"touch {done}")), "creates": done}
    return {"ansible.builtin.shell": words}


def _task(kind: str, given: Mapping[str, Any]) -> Iterator[Task]:
    match kind:
        case "shipped._place":
            file = given["file"]
            yield _copy(file.path, file.text, f"0{file.mode}")
        case "files.put" if isinstance(given["src"], io.StringIO):
            yield _copy(given["dest"], given["src"].getvalue())
        case "files.directory":
            folder = {
                "path": given["path"],
                "state": "directory",
                "owner": given.get("user"),
                "group": given.get("group"),
            }
            mode = {"mode": f"0{given['mode']}"} if given.get("mode") else {}
            yield {"ansible.builtin.file": {name: value for name, value in (folder | mode).items() if value}}
        case "files.link":
            link = {"path": given["path"], "src": given["target"], "state": "link", "force": True}
            yield {"ansible.builtin.file": link}
        case _:
            yield from _system_task(kind, given)


def _system_task(kind: str, given: Mapping[str, Any]) -> Iterator[Task]:
    match kind:
        case "apt.packages" if not given.get("present", True):
            yield {"ansible.builtin.apt": {"name": list(given["packages"]), "state": "absent", "purge": True}}
        case "apt.packages":
            listed = {"update_cache": True, "cache_valid_time": given["cache_time"]}
            yield {"ansible.builtin.apt": {"name": list(given["packages"]), "install_recommends": False, **listed}}
        case "apt.update":
            yield {"ansible.builtin.apt": {"update_cache": True}}
        case "server.hostname":
            yield {"ansible.builtin.hostname": {"name": given["hostname"], "use": "systemd"}}
        case "server.timezone":
            zone = {"path": "/etc/localtime", "src": f"/usr/share/zoneinfo/{given['timezone']}", "state": "link"}
            yield {"ansible.builtin.file": zone}
        case "systemd.daemon_reload":
            yield {"ansible.builtin.systemd_service": {"daemon_reload": True}}
        case "running._run":
            yield {"ansible.builtin.systemd_service": {"name": given["unit"], "state": "started", "enabled": True}}
        case "systemd.service":
            yield {"ansible.builtin.systemd_service": _service(given)}


def _service(given: Mapping[str, Any]) -> Task:
    state = {"state": "restarted" if given.get("restarted") else "started"}
    wanted = state if given.get("restarted") or given.get("running", True) else {}
    return {"name": given["service"], **wanted, **({"enabled": True} if given.get("enabled") else {})}


def _for_any(value: object, node: NodePlan) -> object:
    """Return what holds for each machine of the inventory: its name and address stand where the node's do."""
    if isinstance(value, dict):
        return {key: _for_any(each, node) for key, each in value.items()}
    if isinstance(value, list):
        return [_for_any(each, node) for each in value]
    if not isinstance(value, str):
        return value
    before, behind = (_END, _RAW) if value.startswith(_RAW) else ("", "")
    for own, variable in ((node.name.partition(".")[0], "inventory_hostname_short"), (str(node.address), "address")):
        value = re.sub(rf"(?<![\w.-]){re.escape(own)}(?![\w-])", f"{before}{{{{ {variable} }}}}{behind}", value)
    return value


def _folders(tasks: list[Task]) -> Task:
    """Return the task that makes the folders of files: `copy` makes none, our operations make their own."""
    files = [task["ansible.builtin.copy"]["dest"] for task in tasks if "ansible.builtin.copy" in task]
    folders = " ".join([*sorted({str(Path(file).parent) for file in files}), _DONE])
    return {"name": "Folders", "ansible.builtin.command": f"mkdir -p {folders}", "changed_when": False}


def _copy(path: str, text: str, mode: str = "") -> Task:
    # Ansible would read its own brackets in what is only a text.
    content = f"{_RAW}{text}{_END}"
    return {"ansible.builtin.copy": {"dest": path, "content": content, **({"mode": mode} if mode else {})}}


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
