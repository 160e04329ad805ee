"""Print the best of the results that simulators have left below a folder."""

import json
import sys
from pathlib import Path


def main(folder: str) -> None:
    """Read each result.json below the folder."""
    results = [json.loads(file.read_text()) for file in Path(folder).rglob("result.json")]
    best = max(results, key=lambda result: result["seconds"])
    print(f"best of {len(results)}: element {best['element']}, {best['seconds']:.1f} s with {best['gains']}")


if __name__ == "__main__":
    main(sys.argv[1])
