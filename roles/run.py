"""The process that applies: reads an order from stdin and writes events to stdout as lines of JSON.

It exits when all nodes are done. If stdin ends earlier, each node stops after its current operation. It is a process of
its own, because gevent patches the sockets of its process.
"""

from gevent import monkey

monkey.patch_all()

import sys  # noqa: E402  imported after the patch, so that every module gets the patched sockets

from bedplate.nodes.apply import read_request  # noqa: E402
from roles.engine.node_run import run_request  # noqa: E402

if __name__ == "__main__":
    run_request(read_request(sys.stdin.buffer), sys.stdin.buffer, sys.stdout)
