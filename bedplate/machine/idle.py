"""`python3 -m bedplate.machine.idle`: the name by which units start `bedplate.programs.idle` from the bundle."""

import time

from bedplate.programs.idle import Machine, main

if __name__ == "__main__":
    main(Machine(), int(time.time()))
