"""Words about what runs on a node: labels and taints of Kubernetes, versions of it, of the driver and of the kernel."""

from typing import Annotated

from bedplate.spec.syntax import Syntax

_KUBERNETES_NAME = r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?"
_LABEL_KEY = rf"([a-z0-9]([a-z0-9.-]{{0,251}}[a-z0-9])?/)?{_KUBERNETES_NAME}"
_LABEL_HOW = "letters, digits and inner -_. up to 63, before it a domain and a slash at will"
# Source: https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/, "Syntax and character set".
LabelKey = Annotated[str, Syntax("E320", "label key", _LABEL_KEY, _LABEL_HOW, "lab.example/team", 317, "Kubernetes")]
LabelValue = Annotated[
    str,
    Syntax(
        "E320",
        "label value",
        f"({_KUBERNETES_NAME})?",
        "letters, digits and inner -_. up to 63",
        "vision",
        63,
        "Kubernetes",
    ),
]
Taint = Annotated[
    str,
    Syntax(
        "E321",
        "taint",
        rf"{_LABEL_KEY}(=({_KUBERNETES_NAME})?)?:(NoSchedule|PreferNoSchedule|NoExecute)",
        "a label key, = and a value, a colon, and NoSchedule, PreferNoSchedule or NoExecute",
        "team=vision:NoSchedule",
        400,
        "Kubernetes",
    ),
]
KubernetesVersion = Annotated[
    str, Syntax("E605", "Kubernetes version", r"1\.[0-9]{1,2}", "1, a dot and the minor version", "'1.36'")
]
DriverBranch = Annotated[str, Syntax("E606", "driver branch", r"[0-9]{3}", "three digits", "'580'")]
KernelSeries = Annotated[
    str, Syntax("E617", "kernel series", r"[1-9][0-9]?\.[0-9]{1,2}", "two numbers and a dot between them", "'6.8'")
]
