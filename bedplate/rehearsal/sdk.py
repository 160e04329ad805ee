"""The SDK's modules, loaded in the only order that leaves its packages whole.

A package of pulumi_aws is loaded on first use. When one of its leaf modules is what loads it, the package lacks that
leaf's classes for good, and a program that asks the package for them fails.
"""

import importlib
from types import ModuleType


def leaf(package: str, name: str) -> ModuleType:
    """Return a leaf module, `leaf("pulumi_aws.ec2", "vpc")`, after its package was loaded whole."""
    hasattr(importlib.import_module(package), "outputs")
    return importlib.import_module(f"{package}.{name}")
