"""What an edit of the fleet file does to a fleet that lives: every key's promise, and the edits between two files.

Pure: two fleets in, edits with their effects out. Nothing here plans, reads a file or talks to AWS; that the
promises are kept is held by tests, which rehearse an edit of every key.
"""
