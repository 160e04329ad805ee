"""bedplate: a deep-learning lab's infrastructure, declared in one file and run from it."""

import time

STARTED = time.perf_counter()
"""When this process began to import bedplate."""
__version__ = "0.1.0"
