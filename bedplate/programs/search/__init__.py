"""The driver of a search: a run whose program asks Optuna for trials, starts them as runs, and stops some early.

`bp search` ships it, with the study and the environment of requirements.txt, to the machine of the trials.
"""
