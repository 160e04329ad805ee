"""The build of a node bundle: processor time of the first build and of an unchanged one, and the size of the archives.

Targets, on a core at full speed: 20 s, 2 s, and 60 MB for each architecture. pip downloads the wheels, or takes them
from its cache. The peer is GNU tar with gzip, which packs the same files.
"""

import subprocess
import sys
import tarfile
from io import BytesIO
from pathlib import Path
from resource import RUSAGE_CHILDREN, RUSAGE_SELF, getrusage
from tempfile import TemporaryDirectory
from time import perf_counter

from bedplate.bundle import Bundle, Cache, Source, build_bundle, pack
from tests.testlab.run import pace, pace_line

MAX_BUILD_S, MAX_UNCHANGED_S, MAX_MB = 20, 2, 60


def processor() -> float:
    """Return the processor seconds of this process and of those that it has waited for."""
    return sum(usage.ru_utime + usage.ru_stime for usage in map(getrusage, (RUSAGE_SELF, RUSAGE_CHILDREN)))


def build(cache: Cache) -> tuple[Bundle, float, float]:
    """Build the bundle; return it with the seconds of processor and of the clock."""
    before, start = processor(), perf_counter()
    bundle = build_bundle(cache)
    return bundle, (processor() - before) / pace(), perf_counter() - start


def packed(blob: bytes, folder: Path) -> tuple[float, float]:
    """Unpack an archive; return the processor seconds that GNU tar and `pack` need for its files."""
    with tarfile.open(fileobj=BytesIO(blob)) as archive:
        archive.extractall(folder, filter="data")
    files = tuple(str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file())
    times = [processor()]
    command = ["/usr/bin/tar", "--sort=name", "--mtime=@0", "-czf", str(folder / "peer.tar.gz"), *files]
    subprocess.run(command, cwd=folder, check=True)
    times.append(processor())
    pack(Source(folder, files))
    times.append(processor())
    return times[1] - times[0], times[2] - times[1]


def main() -> int:
    """Print the figures; return 1 if a target is missed."""
    print(pace_line())
    with TemporaryDirectory() as name:
        cache = Cache(Path(name, "cache"))
        bundle, first, elapsed = build(cache)
        same, unchanged, _ = build(cache)
        sizes = {target: len(cache.read(blob)) / 1e6 for target, blob in bundle.wheels.items()}
        code = len(cache.read(bundle.code)) / 1e6
        peer, ours = packed(cache.read(next(iter(bundle.wheels.values()))), Path(name, "files"))
    megabytes = max(sizes.values()) + code
    print(f"first build {first:.1f} s of processor, {elapsed:.0f} s elapsed (target: {MAX_BUILD_S} s of processor)")
    print(f"unchanged build {unchanged:.2f} s of processor (target: {MAX_UNCHANGED_S} s)")
    print(f"code {code:.1f} MB, {', '.join(f'{target} {size:.1f} MB' for target, size in sizes.items())}")
    print(f"pack {ours:.1f} s, GNU tar with gzip {peer:.1f} s: {ours / peer:.2f} times")
    is_slow = first > MAX_BUILD_S or unchanged > MAX_UNCHANGED_S
    return int(is_slow or megabytes > MAX_MB or same != bundle)


if __name__ == "__main__":
    sys.exit(main())
