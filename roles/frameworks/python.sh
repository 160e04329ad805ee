#!/bin/sh
# Written by bedplate: Python with PyTorch. A link would not find the environment; python3 is the system's.
exec "/opt/bedplate-frameworks/current/bin/$(basename "$0")" "$@"
