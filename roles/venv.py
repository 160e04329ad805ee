"""Programs that Python's index has and the distribution has not: a folder each, taken by their sums.

Which index a node asks is its own matter: the sums are the same everywhere.
"""

PACKAGES = ("ca-certificates", "python3-venv")
# What python3-venv brings for ensurepip, which copies it into each new folder and compiles it: five seconds for a
# program that is used once. It runs as it is. Source: /usr/lib/python3.11/ensurepip of Debian 12, 3.12 of Ubuntu 24.04.
_PIP = "/usr/share/python-wheels/pip-*.whl"
# The machine's own authorities: a company's mirror or proxy signs with its own.
_TRUST = "PIP_CERT=/etc/ssl/certs/ca-certificates.crt"


def taken(folder: str, wanted: str) -> list[str]:
    """Return the commands that make a folder anew with what a file lists by its sums."""
    pip = f"set -- {_PIP} && PYTHONPATH=$1 {_TRUST} {folder}/bin/python -m pip --quiet --no-cache-dir"
    how = "--disable-pip-version-check --require-hashes --only-binary :all: --no-deps"
    return [
        f"python3 -m venv --clear --without-pip {folder}",
        f"{pip} install {how} --requirement {wanted}",
    ]
