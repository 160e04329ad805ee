"""The first process of a run, on a machine or in a pod: code, program, output, stop and end. It runs on Python 3.9."""
