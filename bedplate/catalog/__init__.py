"""Dated facts about AWS, NVIDIA and Kubernetes: regions, instance types, offers, prices, quotas, drivers, versions.

The facts are in `data/`, one per line, with date and source. `bedplate catalog refresh` rewrites instance types, offers
and prices in the same format, so that a diff shows what AWS has changed.
"""

from bedplate.catalog.catalog import Catalog, load_catalog
from bedplate.catalog.tables import AcceleratorFacts, GpuFacts, InstanceFacts, RegionFacts

__all__ = ["AcceleratorFacts", "Catalog", "GpuFacts", "InstanceFacts", "RegionFacts", "load_catalog"]
