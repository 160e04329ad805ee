"""Stubbed answers of AWS about the instances of the lab's group workbench-cpu, their names and their consoles."""

import base64
from typing import Any

from tests.testlab.fakes.aws import StubbedSession

HOME = "us-west-2"
INSTANCE, ADDRESS = "i-0000000000000000b", "10.64.33.7"
_POOL = "lab-workbench-cpu-us-west-2"
_REST = {"IsTruncated": False, "MaxItems": "100"}


def name_zone(account: StubbedSession, *owners: tuple[str, str], ids: tuple[str, ...] = ("Z1",)) -> None:
    """Prepare the records of the zone: the instance that owns each name. Public zones are ignored."""
    about = {"Name": "lab.internal.", "CallerReference": "c"}
    private = [{"Id": f"/hostedzone/{zone_id}", **about, "Config": {"PrivateZone": True}} for zone_id in ids]
    public = {"Id": "/hostedzone/Z9", **about, "Config": {"PrivateZone": False}}
    listed = {"HostedZones": [*private, public], **_REST}
    account.answers("route53", HOME, "list_hosted_zones_by_name", listed, DNSName="lab.internal")
    records: list[dict[str, Any]] = [
        {"Name": f"{name}.lab.internal.", "Type": "TXT", "ResourceRecords": [{"Value": f'"{instance}"'}]}
        for name, instance in owners
    ]
    answer = {"ResourceRecordSets": records, **_REST}
    for zone_id in ids:
        account.answers("route53", HOME, "list_resource_record_sets", answer, HostedZoneId=zone_id)


def console(account: StubbedSession, key: str, instance: str = INSTANCE, *, before: str = "") -> None:
    """Prepare an instance's console with what cloud-init writes at the first boot."""
    block = (
        "<14>Nov 22 09:00:00 cloud-init: 256 SHA256:x root@ip-10-64-33-7 (ED25519)\r\n"
        "-----BEGIN SSH HOST KEY KEYS-----\r\n"
        "ecdsa-sha2-nistp256 AAAAE2VjZHNhLXNoYTItbmlzdHAyNTYAAAAIbmlzdHAyNTYAAABBBA== root@ip-10-64-33-7\r\n"
        f"{key} root@ip-10-64-33-7\r\n"
        "-----END SSH HOST KEY KEYS-----\r\n"
    )
    console_output(account, before + block if key else before, instance)


def console_output(account: StubbedSession, text: str, instance: str = INSTANCE) -> None:
    """Prepare the text of an instance's console."""
    reply = {"InstanceId": instance, "Output": base64.b64encode(text.encode()).decode()}
    account.answers("ec2", HOME, "get_console_output", reply, InstanceId=instance, Latest=True)


def group_members(account: StubbedSession, *ids: str, state: str = "InService", group_names: object = (_POOL,)) -> None:
    """Prepare the instances of the group and their address; `group_names` are those in the request."""
    members = [
        {
            "InstanceId": instance,
            "AvailabilityZone": f"{HOME}a",
            "LifecycleState": state,
            "HealthStatus": "Healthy",
            "ProtectedFromScaleIn": False,
        }
        for instance in ids
    ]
    group = {
        "AutoScalingGroupName": _POOL,
        "MinSize": 1,
        "MaxSize": 20,
        "DesiredCapacity": 2,
        "DefaultCooldown": 300,
        "AvailabilityZones": [f"{HOME}a"],
        "HealthCheckType": "EC2",
        "CreatedTime": "2026-11-21T00:00:00Z",
        "Instances": members,
    }
    reply, names = {"AutoScalingGroups": [group]}, [*group_names] if isinstance(group_names, tuple) else group_names
    account.answers("autoscaling", HOME, "describe_auto_scaling_groups", reply, AutoScalingGroupNames=names)
    if ids:
        filters = [{"Name": "instance-id", "Values": list(ids)}]
        instances(account, filters, *({"InstanceId": instance, "PrivateIpAddress": ADDRESS} for instance in ids))


def existing(account: StubbedSession, instance: str, *, is_there: bool) -> None:
    """Prepare whether an instance has terminated."""
    states = ["pending", "running", "shutting-down", "stopping", "stopped"]
    filters = [{"Name": "instance-id", "Values": [instance]}, {"Name": "instance-state-name", "Values": states}]
    instances(account, filters, *([{"InstanceId": instance}] if is_there else []))


def instances(account: StubbedSession, filters: list[dict[str, Any]], *matches: dict[str, Any]) -> None:
    """Prepare the instances that EC2 finds with these filters."""
    booked = [{"Instances": list(matches)}] if matches else []
    account.answers("ec2", HOME, "describe_instances", {"Reservations": booked}, Filters=filters)
