"""The catalogue of rules: each has a code, a level, a reason and a fix, a failing and a passing example in the tests.

Rules are pure functions over the spec, the plan and the catalogue; nothing here reads a file.
"""
