"""The process that applies: an order on its input, events as lines of JSON on its output.

It ends when all nodes are done; when its input ends before that, between two operations of each node.
"""

from gevent import monkey

monkey.patch_all()

import sys  # noqa: E402  everything that is loaded from here on shall find the patched sockets

from bedplate.nodes.apply import read_order  # noqa: E402
from roles.engine.work import work_through  # noqa: E402

if __name__ == "__main__":
    work_through(read_order(sys.stdin.buffer), sys.stdin.buffer, sys.stdout)
