"""The simulated AWS of `provider`, which refuses to create some resources.

`python -m tests.testlab.engine.faulty FILE PORT ACCOUNT`: while FILE exists, it holds a part of their URNs.
"""

import sys
from pathlib import Path
from typing import Any

import grpc

from tests.testlab.engine import provider


class FaultyProvider(provider.Provider):
    """A provider that refuses the resources that FILE names."""

    def Create(self, request: Any, context: Any) -> Any:  # noqa: ANN401, N802
        """Create a resource, or refuse it."""
        file = Path(sys.argv[1])
        if not request.preview and file.exists() and file.read_text() in request.urn:
            context.abort(grpc.StatusCode.UNKNOWN, "UnavailableException: the service is unavailable")
        return super().Create(request, context)


if __name__ == "__main__":
    provider.Provider = FaultyProvider  # type: ignore[misc]  # the class that `serve` creates
    provider.serve(int(sys.argv[2]), sys.argv[3])
