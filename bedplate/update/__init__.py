"""The effect of an edit of the fleet file on a deployed fleet: the policy of every key, and the edits of two files.

Pure functions: nothing here plans, reads a file or calls AWS. `tests/labs/test_update_promises.py` rehearses an edit
of every key and compares the result with its policy.
"""
