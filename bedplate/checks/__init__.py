"""The catalogue of rules: code, level, reason and fix, with a failing and a passing example of each in the tests.

Rules are pure functions over the spec, the plan and the catalogue; nothing here reads a file.
"""
