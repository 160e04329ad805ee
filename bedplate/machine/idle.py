"""`python3 -m bedplate.machine.idle`: the name by which units start `bedplate.programs.idle` from the bundle.

A machine that nobody has used for the idle time of its plan then ends (`bedplate.machine.unused`).
"""

import time

from bedplate.programs.idle import Machine, is_over, main

if __name__ == "__main__":
    this, now = Machine(), time.time()
    main(this, int(now))
    if is_over(this, now):
        # Here: most looks need no client of AWS, which is slow to load.
        from bedplate.machine.unused import end_unused

        end_unused(this, now)
