"""What runs on a node during one apply, as root: takes commands and files from its input, gives back what came of them.

It is sent over and run from memory by the node's own Python, so it imports the standard library and its neighbours here
alone. It holds the node's lock as long as it lives, ends by itself when nobody speaks to it any more, but never in the
middle of a command.
"""
