"""What the machines of an Auto Scaling group are made from: its launch template, found, and fit for its subnets."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from bedplate.rehearsal.kind import Props
from bedplate.rehearsal.kinds.described import SECURITY_GROUP, SUBNET, described
from bedplate.rehearsal.kinds.ec2_offer import refuse_unoffered
from bedplate.rehearsal.kinds.launch_references import group_ids
from bedplate.rehearsal.kinds.launch_start import unstartable
from bedplate.rehearsal.kinds.scaling_interface import interfaces
from bedplate.rehearsal.refusal import Refusal
from bedplate.rehearsal.simulation import Aws


def refuse_unfit(aws: Aws, inputs: Props) -> None:
    """Refuse a group that could start no machine: template, version, image, types, zones, networks."""
    subnets = [described(aws, SUBNET, ident) for ident in inputs.get("vpcZoneIdentifiers") or []]
    zones = {subnet["AvailabilityZone"] for subnet in subnets} or set(inputs.get("availabilityZones") or [])
    policy = (inputs.get("mixedInstancesPolicy") or {}).get("launchTemplate") or {}
    spec = policy.get("launchTemplateSpecification") or inputs.get("launchTemplate") or {}
    data = _data(aws, spec)
    kept = interfaces(aws, data, inputs, zones)
    networks = {place["VpcId"] for place in (*subnets, *kept)} or _default_network(aws)
    if len(networks) > 1:
        raise Refusal("ValidationError", "The subnets are of more than one VPC", key="vpcZoneIdentifiers")
    if policy and data.get("InstanceMarketOptions"):
        _refuse("The market of a mixed instances policy is its own: the template may have no InstanceMarketOptions")
    types = _types(policy.get("overrides") or [], data)
    if not data.get("ImageId") or not types:
        _refuse(f"The launch template {_name(spec)} has no image or no instance type")
    if reason := _unresolvable(data, types, inputs):
        _refuse(reason)
    named = [one for one in types if one]
    refuse_unoffered(aws, named, zones)
    if reason := unstartable(aws, inputs, data, named, zones):
        _refuse(reason)
    _refuse_strange_groups(aws, group_ids(data), networks)


def _default_network(aws: Aws) -> set[str]:
    """Return where machines go that are given zones and no subnets."""
    only = [{"Name": "isDefault", "Values": ["true"]}]
    return {vpc["VpcId"] for vpc in aws.call("ec2", "describe_vpcs", Filters=only)["Vpcs"]}


def _name(spec: Mapping[str, Any]) -> str:
    found = (spec.get(key) for key in ("launchTemplateId", "id", "launchTemplateName", "name"))
    return next((str(value) for value in found if value), "")


def _data(aws: Aws, spec: Mapping[str, Any]) -> dict[str, Any]:
    by_id = spec.get("launchTemplateId") or spec.get("id")
    which = {"LaunchTemplateId": by_id} if by_id else {"LaunchTemplateName": _name(spec)}
    versions = [str(spec.get("version") or "$Default")]
    if not re.fullmatch(r"\d+|\$Default|\$Latest", versions[0]):
        _refuse(f"{versions[0]} is no version: give a number, $Default or $Latest")
    try:
        found = aws.call("ec2", "describe_launch_template_versions", **which, Versions=versions)
    except Refusal as error:
        _refuse(error.message)
    listed = found["LaunchTemplateVersions"]
    if not listed:
        _refuse(f"{_name(spec)} has no version {versions[0]}")
    data: dict[str, Any] = listed[0]["LaunchTemplateData"]
    return data


def _types(overrides: Iterable[Mapping[str, Any]], data: Mapping[str, Any]) -> list[str]:
    """Return the instance types of a group; an empty one stands for types chosen by requirements."""
    own = data.get("InstanceType") or ("" if data.get("InstanceRequirements") else None)
    listed = ["" if one.get("instanceRequirements") else one.get("instanceType") or own for one in overrides]
    return [one for one in (listed or [own]) if one is not None]


def _unresolvable(data: Mapping[str, Any], types: Iterable[str], inputs: Props) -> str:
    """Return why a parameter cannot stand for the image, which a refresh would say only when it begins.

    Source: EC2 Auto Scaling user guide, "Use AWS Systems Manager parameters instead of AMI IDs in launch templates".
    """
    if not str(data.get("ImageId")).startswith("resolve:ssm:"):
        return ""
    preferences = (inputs.get("instanceRefresh") or {}).get("preferences") or {}
    if "" in types:
        return "Its image is a parameter: that goes with no instance requirements"
    return "Its image is a parameter: that goes with no skipMatching" if preferences.get("skipMatching") else ""


def _refuse_strange_groups(aws: Aws, groups: Iterable[str], networks: Iterable[str]) -> None:
    for group in groups:
        home = described(aws, SECURITY_GROUP, group)["VpcId"]
        if home not in networks:
            _refuse(f"The security group {group} is of {home}, not of the subnets' VPC")


def _refuse(reason: str) -> None:
    raise Refusal("ValidationError", f"You must use a valid fully-formed launch template. {reason}")
