"""MPI without sshd: mpirun on node 0 starts its daemons on the other nodes by a program in the place of ssh."""

import sys
from collections.abc import Mapping, Sequence
from contextlib import closing
from itertools import dropwhile
from pathlib import Path

from ..program import write_text
from .links import connect

# Of Open MPI 4.1 (orte/mca/plm/rsh/plm_rsh_component.c and orte/runtime/orte_mca_params.c), of PRRTE 3 in Open MPI 5
# (src/mca/plm/ssh/plm_ssh_component.c and src/runtime/prte_mca_params.c), of Hydra in MPICH (bsci_init.c.in and
# get_parameters.c), and of Intel MPI ("Hydra Environment Variables" in its Developer Reference).
_AGENT = "OMPI_MCA_plm_rsh_agent", "PRTE_MCA_plm_ssh_agent", "HYDRA_LAUNCHER_EXEC", "I_MPI_HYDRA_BOOTSTRAP_EXEC"
# HYDRA_ENV: else ranks on other nodes get the GPUs and the interface of node 0, and its secrets unencrypted.
_FIXED = {"HYDRA_LAUNCHER": "ssh", "I_MPI_HYDRA_BOOTSTRAP": "ssh", "HYDRA_ENV": "none"}
_HOSTS = {
    "{host} slots={slots}": ("OMPI_MCA_orte_default_hostfile", "PRTE_MCA_prte_default_hostfile"),
    "{host}:{slots}": ("HYDRA_HOST_FILE", "I_MPI_HYDRA_HOST_FILE"),
}
# Neither variables nor packages of the person reach it.
_PROGRAM = """#!{python} -IS
import sys
sys.path[:] = {path!r}
from {package}.mpi import run_there
sys.exit(run_there({first!r}, sys.argv[1:]))
"""


def mpi_variables(folder: Path, hosts: Sequence[str], slots: int, first: tuple[str, int, str]) -> Mapping[str, str]:
    """Return the variables by which mpirun uses hosts; `first`: address and port of node 0, and the token's file."""
    agent = folder / "mpi-agent"
    text = _PROGRAM.format(python=sys.executable, path=sys.path, package=__package__, first=first)
    write_text(agent, text, 0o700)
    variables = {**dict.fromkeys(_AGENT, str(agent)), **_FIXED}
    for number, (line, names) in enumerate(_HOSTS.items()):
        file = folder / f"mpi-hosts-{number}"
        write_text(file, "".join(f"{line}\n".format(host=host, slots=slots) for host in hosts))
        variables.update(dict.fromkeys(names, str(file)))
    return variables


def run_there(first: tuple[str, int, str], words: Sequence[str]) -> "int | str":
    """Run a command on another node as ssh does, `[-OPTION...] HOST COMMAND...`; return its exit code, or an error."""
    host, *command = dropwhile(lambda word: word.startswith("-"), words)
    address, port, token = first
    try:
        with closing(connect(address, port, Path(token).read_text(encoding="ascii").strip(), 0)) as link:
            link.send("remote", host=host, command=" ".join(command))
            return int(link.receive(None)["code"])
    except OSError as error:
        return f"{host} does not run {command[:1]}: {error}"
