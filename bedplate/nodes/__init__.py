"""The fleet's machines as SSH reaches them: who they are, how their keys are known, and what is run on them.

Nothing here knows what a role does, or asks AWS.
"""
