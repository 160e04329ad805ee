"""E6: what is on the image: the driver, its kernel, and the kubelet."""

from bedplate.checks.rules.rule import Rule

IMAGE_RULES = (
    Rule(
        "E606", "driver-branch", "A branch is what the image pins.", "write it as '580'", "NVIDIA data center drivers"
    ),
    Rule(
        "E607",
        "version-skew",
        "A kubelet is never newer than its control plane, and at most three minor versions older.",
        "write the cluster's version",
        "Kubernetes, Version Skew Policy",
    ),
    Rule(
        "E610",
        "unknown-branch",
        "NVIDIA has no such branch, as far as the catalogue knows.",
        "write it as '580'",
        "NVIDIA data center drivers",
        allowable=True,
    ),
    Rule(
        "E611",
        "driver-too-old",
        "A driver does not know GPUs that came after it; Blackwell needs open kernel modules of 570 or newer.",
        "write a newer branch",
        "NVIDIA data center driver release notes",
        allowable=True,
    ),
    Rule(
        "E612",
        "no-open-modules",
        "The image has NVIDIA's open kernel modules, which run Turing and newer.",
        "choose a type with newer GPUs",
        "NVIDIA open-gpu-kernel-modules",
    ),
    Rule(
        "E613",
        "driver-kernel",
        "Modules that do not build leave a node without its GPUs.",
        "write a newer branch, or an older kernel",
        "NVIDIA driver release notes",
        allowable=True,
    ),
    Rule(
        "W614",
        "branch-ended",
        "What NVIDIA no longer mends stays broken.",
        "write a branch that is mended",
        "NVIDIA data center drivers",
        allowable=True,
    ),
    Rule("E617", "kernel-series", "Modules are built for a series of kernels.", "write it as '6.8'"),
)
