"""Variables of an image that slow NCCL down between nodes: they were right for older software, or other machines."""

import re
from collections.abc import Collection, Mapping

# The first by doc/efa-env-var.md of aws-ofi-nccl and NCCL's "Environment Variables", the others by the latter.
_EFFECTS = {
    "obsolete": r"RDMAV_\w+=|FI_EFA_(FORK_SAFE|USE_DEVICE_RDMA|ENABLE_SHM_TRANSFER)=|FI_PROVIDER="
    "|NCCL_(PROTO|LL_THRESHOLD|TREE_THRESHOLD|SINGLE_RING_THRESHOLD)=",
    "hides the fabric": "NCCL_IB_DISABLE=1|NCCL_NET=Socket",
    "may be no interface here": "NCCL_SOCKET_IFNAME=",
}


def fabric_note(environment: Mapping[str, str], own: Collection[str]) -> Mapping[str, str]:
    """Return a tag with the variables that an image should not set, if there are any; `own` are those of the person."""
    words = sorted(f"{name}={value}" for name, value in environment.items() if value and name not in own)
    notes = [f"{word} ({effect})" for word in words for effect, form in _EFFECTS.items() if re.match(form, word)]
    return {"note": f"the image sets {', '.join(notes)}"} if notes else {}
