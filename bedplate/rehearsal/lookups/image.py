"""Machine images."""

import re
from typing import Any

from bedplate.rehearsal.kind import Props
from bedplate.rehearsal.lookups.lookup import Lookup, filters, picked, tag_map
from bedplate.rehearsal.refusal import Refusal
from bedplate.rehearsal.simulation import Aws

_NAMES = {
    "architecture": "Architecture",
    "bootMode": "BootMode",
    "creationDate": "CreationDate",
    "deprecationTime": "DeprecationTime",
    "description": "Description",
    "enaSupport": "EnaSupport",
    "hypervisor": "Hypervisor",
    "imageLocation": "ImageLocation",
    "imageOwnerAlias": "ImageOwnerAlias",
    "imageType": "ImageType",
    "imdsSupport": "ImdsSupport",
    "kernelId": "KernelId",
    "name": "Name",
    "ownerId": "OwnerId",
    "platform": "Platform",
    "platformDetails": "PlatformDetails",
    "public": "Public",
    "ramdiskId": "RamdiskId",
    "rootDeviceName": "RootDeviceName",
    "rootDeviceType": "RootDeviceType",
    "sriovNetSupport": "SriovNetSupport",
    "state": "State",
    "tpmSupport": "TpmSupport",
    "usageOperation": "UsageOperation",
    "virtualizationType": "VirtualizationType",
}


def _mapping(block: dict[str, Any]) -> dict[str, Any]:
    ebs = {
        f"{name[0].lower()}{name[1:]}": str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in (block.get("Ebs") or {}).items()
    }
    return {
        "deviceName": block.get("DeviceName", ""),
        "ebs": ebs,
        "noDevice": block.get("NoDevice", ""),
        "virtualName": block.get("VirtualName", ""),
    }


def _image(aws: Aws, args: Props) -> dict[str, Any]:
    found = _newest(_listed(aws, args), many=bool(args.get("mostRecent")))
    ident, blocks = found["ImageId"], found.get("BlockDeviceMappings") or []
    roots = [block for block in blocks if block.get("DeviceName") == found.get("RootDeviceName")]
    return {
        **picked(found, _NAMES),
        "arn": f"arn:aws:ec2:{aws.region}::image/{ident}",
        "blockDeviceMappings": [_mapping(block) for block in blocks],
        "id": ident,
        "imageId": ident,
        "rootSnapshotId": ((roots[0].get("Ebs") or {}) if roots else {}).get("SnapshotId", ""),
        "stateReason": {"code": "UNSET", "message": "UNSET"},
        "tags": tag_map(found.get("Tags")),
    }


def _listed(aws: Aws, args: Props) -> list[dict[str, Any]]:
    # The filter on tags is made below from the tags that were asked for; they are no argument of the call.
    who = {"Owners": args["owners"]} if args.get("owners") else {}
    executable = {"ExecutableUsers": args["executableUsers"]} if args.get("executableUsers") else {}
    where = [*filters(args), {"Name": "state", "Values": ["available"]}]
    images = aws.call("ec2", "describe_images", Filters=where, **who, **executable)["Images"]
    pattern = re.compile(args.get("nameRegex") or "")
    return [image for image in images if pattern.search(image.get("Name") or "")]


def _newest(images: list[dict[str, Any]], *, many: bool) -> dict[str, Any]:
    if not images:
        raise Refusal("NotFound", "Your query returned no results. Please change your search criteria and try again.")
    if len(images) > 1 and not many:
        said = "Your query returned more than one result. Try a more specific search, or set mostRecent to true."
        raise Refusal("TooManyResults", said)
    return max(images, key=lambda image: str(image["CreationDate"]))


IMAGE = Lookup(
    "aws:ec2/getAmi:getAmi",
    frozenset({"allowUnsafeFilter", "executableUsers", "filters", "includeDeprecated", "mostRecent", "nameRegex"})
    | {"owners", "tags"},
    _image,
)
