"""`python -m bedplate` is `bedplate`."""

from bedplate.cli import main

main()
