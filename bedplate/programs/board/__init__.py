"""A board: the program of a session that shows runs in TensorBoard, or a study in optuna-dashboard.

`bp board` ships it with the environment of requirements.txt. It serves HTTP on a unix socket, and opens no port.
"""
