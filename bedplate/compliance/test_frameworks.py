"""Rules for workbenches with PyTorch: every person can import it, only root can change it, and it sees the GPUs."""

import pytest
from testinfra.host import Host

from bedplate.compliance.settings import applies_if
from bedplate.plan.nodes import NodePlan
from roles.frameworks.role import CURRENT, FOLDER, PROGRAMS, has_frameworks, torch_version

pytestmark = applies_if(has_frameworks)

# Without the rights, home and environment of a person.
_AS_NOBODY = "setpriv --reuid nobody --regid nogroup --clear-groups env --ignore-environment sh -c %s"


def test_everybody_can_import_pytorch(host: Host) -> None:
    """`python -c "import torch"` works for every user, with the pinned version."""
    answer = host.run(_AS_NOBODY, f"{PROGRAMS[0]} -c 'import torch; print(torch.__version__)'")

    assert answer.succeeded, answer.stderr
    assert answer.stdout.strip().partition("+")[0] == torch_version()


def test_only_root_can_change_frameworks(host: Host) -> None:
    """All files of the environment belong to root, and others cannot write them: every user runs them."""
    # The environment's Python is a link to the system's.
    wrong = host.check_output(f"find {FOLDER} ! -type l '(' ! -user root -o -perm /022 ')' | head -n 3")

    assert wrong == ""
    assert host.file(CURRENT).is_symlink


def test_pytorch_sees_every_gpu(host: Host, node: NodePlan) -> None:
    """PyTorch can use all GPUs of the plan: its CUDA fits the loaded driver."""
    if not node.gpus or not host.file("/sys/module/nvidia").exists:
        pytest.skip("the machine has no GPUs, or no driver yet")
    count = host.run(_AS_NOBODY, f"{PROGRAMS[0]} -c 'import torch; print(torch.cuda.device_count())'").stdout.strip()

    assert count == str(node.gpus.count), f"PyTorch sees {count or 'no'} GPUs, planned {node.gpus.count}"
