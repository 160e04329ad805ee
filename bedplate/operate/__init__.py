"""The operator's workflows: the order of their steps, what they wait for, and what they tell while they run.

They take values and report to whom calls them. The command line parses arguments and prints; nothing here does.
"""
