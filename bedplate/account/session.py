"""Access to EC2 instances of the fleet without a network path to them: id and state, host key, Session Manager.

A host key comes from the instance's console, which EC2 reads from the hypervisor and only root can write. The console
keeps 64 KiB. After that the Systems Manager agent reads the key; a user with the machine's role could answer for it.
"""

import json
import os
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from ipaddress import IPv4Address
from typing import Any

from bedplate.account.client import AwsClient, NotConnected, NotThere, require_all
from bedplate.account.machines import (
    EXISTING,
    Claim,
    LiveMachine,
    find_claim,
    find_instances,
    group_and_region,
    read_claims,
    read_pool_machines,
)
from bedplate.errors import PartialError, ViolationError
from bedplate.nodes.host_keys import PLUGIN
from bedplate.plan.fleet import FleetPlan
from bedplate.plan.nodes import NodePlan, NodeRole

RUNNING = ("InService", "running")
"""The states of a usable machine: of Auto Scaling for machines of pools, of EC2 for others."""
_WRONG_RECORD = "find the machine that wrote the record, delete the records, and let the group replace the machine"


def find_instance(client: AwsClient, plan: FleetPlan, node: NodePlan) -> LiveMachine:
    """Return the running instance of a planned EC2 machine, confirmed by EC2 or its Auto Scaling group.

    Raises PartialError if none runs, and ViolationError if DNS records name an instance of another group.
    """
    if NodeRole.WORKBENCH in node.roles:
        claim = find_claim(read_claims(client, plan), node.name)
        pools = [pool for pool in plan.pools if (pool.group, pool.region) == group_and_region(node.name)]
        answers = require_all(read_pool_machines(client, plan, pools, (claim,)), "nothing was done")
        return confirmed(claim, answers.get(node.region, ()))
    return _permanent(client, plan, node)


def confirmed(claim: Claim, members: tuple[LiveMachine, ...]) -> LiveMachine:
    """Return the machine that claims a name, if Auto Scaling lists it in service in that group and region."""
    group, region = group_and_region(claim.name)
    for machine in members:
        if machine.instance == claim.instance and (machine.group, machine.region) == (group, region):
            return running(replace(machine, name=claim.name))
    what = f"the TXT record of {claim.name} names {claim.instance}, which is no instance of {group} in {region}"
    raise ViolationError(what, fix=_WRONG_RECORD)


def running(machine: LiveMachine) -> LiveMachine:
    """Return the machine; PartialError if it does not run."""
    if machine.state in RUNNING:
        return machine
    what = f"{machine.label} ({machine.instance}) is not in service: {machine.state}"
    if machine.state in {"stopped", "stopping"}:
        fix = f"start it: `aws ec2 start-instances --region {machine.region} --instance-ids {machine.instance}`"
        raise PartialError(what, fix=fix)
    raise PartialError(what, fix="run the command again in a minute; it may still boot")


def _permanent(client: AwsClient, plan: FleetPlan, node: NodePlan) -> LiveMachine:
    """Return the instance of a gateway or a control plane machine; node roles cannot create its tags."""
    tag = ("Name", f"{plan.name}-laptops") if NodeRole.LAPTOPS in node.roles else ("bedplate:member", node.name)
    conditions = {"tag:bedplate:fleet": plan.name, f"tag:{tag[0]}": tag[1], "instance-state-name": EXISTING}
    machines = [_machine(node, instance) for instance in find_instances(client, node.region, conditions)]
    if not machines:
        fix = f"deploy the region: `bedplate up --stack {node.region}`"
        raise PartialError(f"AWS has no instance of {node.name}", fix=fix)
    # While a group replaces an instance there are two.
    return running(min(machines, key=lambda machine: machine.state not in RUNNING))


def _machine(node: NodePlan, instance: Mapping[str, Any]) -> LiveMachine:
    address = instance.get("PrivateIpAddress")
    return LiveMachine(
        instance=instance["InstanceId"],
        group="",
        pool="",
        region=node.region,
        zone=instance.get("Placement", {}).get("AvailabilityZone", ""),
        type=instance.get("InstanceType", ""),
        state=instance["State"]["Name"],
        address=IPv4Address(address) if address else None,
        name=node.name,
    )


# What cloud-init writes at the first boot. The kernel prefixes each line with the time, so its lines never match.
_CONSOLE_KEYS = re.compile(
    r"^-----BEGIN SSH HOST KEY KEYS-----\r*$(.*?)^-----END SSH HOST KEY KEYS-----\r*$", re.MULTILINE | re.DOTALL
)
_ED25519 = re.compile(r"^(ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI[A-Za-z0-9+/]{43})(?=\s|\Z)", re.MULTILINE)
_COMMAND = "cat /etc/ssh/ssh_host_ed25519_key.pub"
_UNFINISHED = ("Pending", "InProgress", "Delayed")
_POLLS, _PAUSE = 30, 1.0


@dataclass(frozen=True, slots=True)
class HostKey:
    """A host key, and the `source` that AWS read it from."""

    key: str
    source: str


def read_host_key(client: AwsClient, machine: LiveMachine) -> HostKey:
    """Return the Ed25519 host key of an instance, from its console, else from its Systems Manager agent.

    People of a workbench, which belongs to a group, have its rights in AWS: they could answer instead of the agent.
    """
    if key := console_key(client, machine.region, machine.instance):
        return HostKey(key, "its console")
    if machine.group:
        raise PartialError(f"the console of {machine.name} ({machine.instance}) has no host key", fix=_by_hand(machine))
    return HostKey(_key_of_agent(client, machine), "its Systems Manager agent")


def _by_hand(machine: LiveMachine) -> str:
    return f"read the fingerprint in the EC2 serial console, then `bedplate node trust {machine.name} SHA256:...`"


def console_key(client: AwsClient, region: str, instance: str) -> str | None:
    """Return the host key that cloud-init has written to the console of an instance; None if it is not there."""
    try:
        reply = client.call("ec2", region, "get_console_output", InstanceId=instance, Latest=True)
    except PartialError:
        # Xen instances do not support `Latest`.
        return None
    blocks = _CONSOLE_KEYS.findall(reply.get("Output", ""))
    return _ed25519_key(blocks[-1]) if blocks else None


def _ed25519_key(text: str) -> str | None:
    match = _ED25519.search(text)
    return match[1] if match else None


def _key_of_agent(client: AwsClient, machine: LiveMachine) -> str:
    query = {"InstanceIds": [machine.instance], "Parameters": {"commands": [_COMMAND]}}
    sent = _call(client, machine, "send_command", DocumentName="AWS-RunShellScript", TimeoutSeconds=30, **query)
    key = _ed25519_key(_output(client, machine, sent["Command"]["CommandId"]))
    if key is None:
        raise PartialError(f"{machine.name} ({machine.instance}) has not returned its host key", fix=_by_hand(machine))
    return key


def _output(client: AwsClient, machine: LiveMachine, command: str) -> str:
    """Return the output of a command of the agent; empty if it failed or took too long."""
    query = {"CommandId": command, "InstanceId": machine.instance}
    for _ in range(_POLLS):
        time.sleep(_PAUSE)
        try:
            reply = _call(client, machine, "get_command_invocation", **query)
        except NotThere:
            continue
        if reply["Status"] not in _UNFINISHED:
            return str(reply.get("StandardOutputContent", ""))
    return ""


def _call(client: AwsClient, machine: LiveMachine, operation: str, **params: Any) -> dict[str, Any]:  # noqa: ANN401  boto3's
    try:
        return client.call("ssm", machine.region, operation, **params)
    except NotConnected as error:
        name = machine.name or machine.instance
        raise PartialError(f"{name} ({machine.instance}) is not connected to Systems Manager", fix=error.fix) from None


# The plugin reads the response from this variable, so that the process list does not show the token.
_RESPONSE = "AWS_SSM_START_SESSION_RESPONSE"


@dataclass(frozen=True, slots=True)
class PluginCommand:
    """The command that carries one SSH connection over its stdin and stdout; `environment` holds its secret."""

    argv: tuple[str, ...]
    environment: Mapping[str, str]


def start_session(client: AwsClient, machine: LiveMachine) -> PluginCommand:
    """Start a Session Manager session to an instance's sshd and return the plugin's command."""
    request = {"Target": machine.instance, "DocumentName": "AWS-StartSSHSession", "Parameters": {"portNumber": ["22"]}}
    reply = _call(client, machine, "start_session", **request)
    response = {key: reply[key] for key in ("SessionId", "TokenValue", "StreamUrl")}
    profile, endpoint = os.environ.get("AWS_PROFILE", ""), client.endpoint("ssm", machine.region)
    argv = (PLUGIN, _RESPONSE, machine.region, "StartSession", profile, json.dumps(request), endpoint)
    return PluginCommand(argv, {_RESPONSE: json.dumps(response)})
