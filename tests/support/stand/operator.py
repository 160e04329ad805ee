"""What the operator of a stand does: bedplate's own command line, in a process of its own, at the desk."""

import json
import sys
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

from tests.support.stand.fresh import ADMIN
from tests.support.stand.stand import Stand

ROOT = Path(__file__).parents[3]


class Operator:
    """Somebody who has a fleet file, a desk, and the key of a fresh machine's admin."""

    def __init__(self, stand: Stand, fleet: Path) -> None:
        self._stand = stand
        self._way = ("--fleet", str(fleet), "--ssh-config", str(stand.ssh_config))

    def bedplate(self, *words: str) -> CompletedProcess[str]:
        """Run a command as it is, from the project's folder."""
        return self._stand.desk.run("env", "--chdir", str(ROOT), sys.executable, "-m", "bedplate", *words)

    def apply(self, *words: str) -> CompletedProcess[str]:
        """Run `bedplate node apply`, as a fresh machine's admin."""
        return self.bedplate("node", "apply", *words, "--user", ADMIN, *self._way)

    def changes(self, *words: str) -> dict[str, list[str]]:
        """Return what an apply changed, or would change, on each machine; it goes well on all."""
        done = self.apply(*words, "--json")
        assert done.returncode in {0, 3}, done.stdout + done.stderr
        return {name: told["changed"] for name, told in json.loads(done.stdout)["nodes"].items()}

    def audit(self, *words: str) -> CompletedProcess[str]:
        """Run `bedplate node audit`."""
        return self.bedplate("node", "audit", *words, *self._way)

    def findings(self, *words: str) -> dict[str, Any]:
        """Return the document of an audit."""
        done = self.audit(*words, "--json")
        assert done.stdout, done.stderr
        document: dict[str, Any] = json.loads(done.stdout)
        return document
