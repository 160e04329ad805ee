"""EC2 instance types, and where they are offered."""

from typing import Any

from bedplate.rehearsal.kind import Props
from bedplate.rehearsal.lookups.lookup import Lookup, filters, picked
from bedplate.rehearsal.simulation import Aws

_NAMES = {
    "autoRecoverySupported": "AutoRecoverySupported",
    "bareMetal": "BareMetal",
    "burstablePerformanceSupported": "BurstablePerformanceSupported",
    "currentGeneration": "CurrentGeneration",
    "dedicatedHostsSupported": "DedicatedHostsSupported",
    "freeTierEligible": "FreeTierEligible",
    "hibernationSupported": "HibernationSupported",
    "hypervisor": "Hypervisor",
    "instanceStorageSupported": "InstanceStorageSupported",
    "supportedRootDeviceTypes": "SupportedRootDeviceTypes",
    "supportedUsagesClasses": "SupportedUsageClasses",
    "supportedVirtualizationTypes": "SupportedVirtualizationTypes",
}
_PROCESSOR = {
    "defaultCores": "DefaultCores",
    "defaultThreadsPerCore": "DefaultThreadsPerCore",
    "defaultVcpus": "DefaultVCpus",
}
_NETWORK = {
    "defaultNetworkCardIndex": "DefaultNetworkCardIndex",
    "efaSupported": "EfaSupported",
    "enaSupport": "EnaSupport",
    "encryptionInTransitSupported": "EncryptionInTransitSupported",
    "ipv6Supported": "Ipv6Supported",
    "maximumIpv4AddressesPerInterface": "Ipv4AddressesPerInterface",
    "maximumIpv6AddressesPerInterface": "Ipv6AddressesPerInterface",
    "maximumNetworkCards": "MaximumNetworkCards",
    "maximumNetworkInterfaces": "MaximumNetworkInterfaces",
    "networkPerformance": "NetworkPerformance",
}


def _type(aws: Aws, args: Props) -> dict[str, Any]:
    name = args["instanceType"]
    found = aws.call("ec2", "describe_instance_types", InstanceTypes=[name])["InstanceTypes"][0]
    network, gpus = found.get("NetworkInfo") or {}, found.get("GpuInfo") or {}
    return {
        **picked(found, _NAMES),
        **picked(found.get("VCpuInfo") or {}, _PROCESSOR),
        **picked(network, _NETWORK),
        "efaMaximumInterfaces": (network.get("EfaInfo") or {}).get("MaximumEfaInterfaces", 0),
        "gpuses": [_gpu(gpu) for gpu in gpus.get("Gpus", [])],
        "id": name,
        "memorySize": found["MemoryInfo"]["SizeInMiB"],
        "supportedArchitectures": found["ProcessorInfo"]["SupportedArchitectures"],
        "supportedPlacementStrategies": (found.get("PlacementGroupInfo") or {}).get("SupportedStrategies", []),
        "totalGpuMemory": gpus.get("TotalGpuMemoryInMiB", 0),
        "totalInstanceStorage": (found.get("InstanceStorageInfo") or {}).get("TotalSizeInGB", 0),
    }


def _gpu(gpu: dict[str, Any]) -> dict[str, Any]:
    return {
        "count": gpu["Count"],
        "manufacturer": gpu["Manufacturer"],
        "memorySize": gpu["MemoryInfo"]["SizeInMiB"],
        "name": gpu["Name"],
    }


INSTANCE_TYPE = Lookup("aws:ec2/getInstanceType:getInstanceType", frozenset({"instanceType"}), _type)


def _offerings(aws: Aws, args: Props) -> dict[str, Any]:
    kind = {"LocationType": args.get("locationType") or "region"}
    found = aws.call("ec2", "describe_instance_type_offerings", **kind, Filters=filters(args))
    listed = sorted(found["InstanceTypeOfferings"], key=lambda one: (one["InstanceType"], one["Location"]))
    return {
        "id": aws.region,
        "instanceTypes": [one["InstanceType"] for one in listed],
        "locationTypes": [one["LocationType"] for one in listed],
        "locations": [one["Location"] for one in listed],
    }


INSTANCE_TYPE_OFFERINGS = Lookup(
    "aws:ec2/getInstanceTypeOfferings:getInstanceTypeOfferings",
    frozenset({"filters", "locationType"}),
    _offerings,
)
