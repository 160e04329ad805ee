"""The checks of what stacks hold: the documents of `bedplate graph`, whoever made them, in; faults out.

Pure: nothing here reads a file, runs a program or knows an SDK. What a graph does not show, since it is secret, unknown
or left out, is not judged.
"""
