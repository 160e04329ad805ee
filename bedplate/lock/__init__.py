"""fleet.lock: the file next to the fleet file that records all allocated blocks, addresses, ids and images.

A lock that differs from the format that bedplate writes is rejected, never repaired.
"""

from bedplate.hold import held
from bedplate.lock.file import (
    LockRefused,
    Recorded,
    lock_path,
    read_lock,
    record_doors,
    record_host_keys,
    record_images,
    record_plan,
    refuse_names,
    refuse_unrecorded,
    renew_images,
)

__all__ = [
    "LockRefused",
    "Recorded",
    "held",
    "lock_path",
    "read_lock",
    "record_doors",
    "record_host_keys",
    "record_images",
    "record_plan",
    "refuse_names",
    "refuse_unrecorded",
    "renew_images",
]
