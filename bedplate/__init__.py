"""bedplate: a deep-learning lab's infrastructure, declared in one file and run from it."""

__version__ = "0.1.0"
