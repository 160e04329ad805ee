"""fleet.lock: the file beside the fleet file that remembers every block and image, and the hold of its one writer.

A lock that is not exactly what bedplate writes is refused, never repaired and never acted on.
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
