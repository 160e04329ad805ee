"""How what a call made is found again where no single listing tells: keys by their tags, rules by their sources."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from bedplate.rehearsal.call import Call
from bedplate.rehearsal.look import Ask, Reply
from bedplate.rehearsal.outage import NO_REPLY
from bedplate.rehearsal.refusal import Refusal


def key_found(call: Call, ask: Ask) -> Reply | None:
    """Return the KMS key with the tags of the call: KMS lists keys without them."""
    wanted = {(tag["TagKey"], tag["TagValue"]) for tag in call.params.get("Tags") or []}
    found = []
    for row in ask(replace(call, operation="list_keys", params={}))["Keys"]:
        one = {"KeyId": row["KeyId"]}
        tags = ask(replace(call, operation="list_resource_tags", params=one))["Tags"]
        state = ask(replace(call, operation="describe_key", params=one))
        is_alive = state["KeyMetadata"]["KeyState"] != "PendingDeletion"
        if is_alive and wanted == {(tag["TagKey"], tag["TagValue"]) for tag in tags}:
            found.append(state)
    if len(found) > 1 or not wanted:
        raise Refusal(NO_REPLY, "the reply to kms.create_key was lost, and its tags do not tell the key from others")
    return found[0] if found else None


def rules_found(call: Call, ask: Ask) -> Reply | None:
    """Return the rules of a security group that the call asks for: none is there twice."""
    group, is_out = call.params["GroupId"], call.operation.endswith("egress")
    there = [{"Name": "group-id", "Values": [group]}]
    rules = ask(replace(call, operation="describe_security_group_rules", params={"Filters": there}))
    wanted = {key for block in call.params["IpPermissions"] for key in _sources(block)}
    found = [rule for rule in rules["SecurityGroupRules"] if rule["IsEgress"] == is_out and _source(rule) in wanted]
    return {"Return": True, "SecurityGroupRules": found} if found else None


def role_found(call: Call, ask: Ask) -> Reply | None:
    """Return an empty reply when a role is in its instance profile, or out of it, as the call asks."""
    profile = {"InstanceProfileName": call.params["InstanceProfileName"]}
    told = ask(replace(call, operation="get_instance_profile", params=profile))
    is_in = call.params["RoleName"] in [role["RoleName"] for role in told["InstanceProfile"]["Roles"]]
    return {} if is_in == call.operation.startswith("add_") else None


def group_found(call: Call, ask: Ask) -> Reply | None:
    """Return an empty reply when there is an Auto Scaling group of that name; moto would make a second one."""
    name = {"AutoScalingGroupNames": [call.params["AutoScalingGroupName"]]}
    there = ask(replace(call, operation="describe_auto_scaling_groups", params=name))["AutoScalingGroups"]
    return {} if there else None


def peering_found(call: Call, ask: Ask) -> Reply | None:
    """Return a peering of VPCs that was accepted; None while it waits for that."""
    told = ask(replace(call, operation="describe_vpc_peering_connections", params={}))["VpcPeeringConnections"]
    ident = call.params["VpcPeeringConnectionId"]
    (found,) = [one for one in told if one["VpcPeeringConnectionId"] == ident]
    return {"VpcPeeringConnection": found} if found["Status"]["Code"] == "active" else None


def association_found(call: Call, ask: Ask) -> Reply | None:
    """Return an empty reply when a zone is resolved in the VPC that the call names; moto would list it twice."""
    told = ask(replace(call, operation="get_hosted_zone", params={"Id": call.params["HostedZoneId"]}))
    return {} if call.params["VPC"]["VPCId"] in [vpc["VPCId"] for vpc in told["VPCs"]] else None


def _sources(block: Mapping[str, Any]) -> list[tuple[object, ...]]:
    ports = (str(block["IpProtocol"]), block.get("FromPort", -1), block.get("ToPort", -1))
    lists = (("IpRanges", "CidrIp"), ("Ipv6Ranges", "CidrIpv6"), ("PrefixListIds", "PrefixListId"))
    ranges = [item[key] for name, key in lists for item in block.get(name) or []]
    return [(*ports, one) for one in (*ranges, *(pair["GroupId"] for pair in block.get("UserIdGroupPairs") or []))]


def _source(rule: Mapping[str, Any]) -> tuple[object, ...]:
    keys = ("CidrIpv4", "CidrIpv6", "PrefixListId")
    group = (rule.get("ReferencedGroupInfo") or {}).get("GroupId")
    source = next((rule[key] for key in keys if rule.get(key)), group)
    return (str(rule["IpProtocol"]), rule.get("FromPort", -1), rule.get("ToPort", -1), source)
