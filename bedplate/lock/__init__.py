"""fleet.lock: the file next to the fleet file that records all allocated blocks, addresses, ids and images.

A lock that differs from the format that bedplate writes is rejected, never repaired.
"""

from bedplate.files import held
from bedplate.lock.file import (
    InvalidLock,
    Recorded,
    check_plan_recorded,
    check_recorded,
    lock_path,
    read_lock,
    record_authority,
    record_baked,
    record_endpoints,
    record_etcd,
    record_host_keys,
    record_images,
    record_plan,
    renew_images,
)

__all__ = [
    "InvalidLock",
    "Recorded",
    "check_plan_recorded",
    "check_recorded",
    "held",
    "lock_path",
    "read_lock",
    "record_authority",
    "record_baked",
    "record_endpoints",
    "record_etcd",
    "record_host_keys",
    "record_images",
    "record_plan",
    "renew_images",
]
