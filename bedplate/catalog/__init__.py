"""Dated facts about AWS, with typed readers: regions, instance types, where they are offered, list prices.

What changes when AWS changes lives in `data/`, one fact a line under its date and source, never in logic.
What `bedplate catalog refresh` renews has its writer beside its reader: the form stays, a diff shows what AWS changed.
"""

from bedplate.catalog.catalog import Catalog, load_catalog
from bedplate.catalog.facts import AcceleratorFacts, GpuFacts, InstanceFacts, RegionFacts

__all__ = ["AcceleratorFacts", "Catalog", "GpuFacts", "InstanceFacts", "RegionFacts", "load_catalog"]
