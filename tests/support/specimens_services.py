"""Specimens of the kinds that are no part of the network, all of them."""

from tests.support.specimens_copies import COPIES
from tests.support.specimens_identity import IDENTITY
from tests.support.specimens_machines import MACHINES
from tests.support.specimens_names import NAMES
from tests.support.specimens_storage import STORAGE

SERVICES = (*COPIES, *IDENTITY, *MACHINES, *NAMES, *STORAGE)
