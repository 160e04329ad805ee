"""The fleet folder: an operator's own folder with the fleet file, its lock, the Pulumi project and a CI workflow.

`bedplate.folder.example` fills an example with the operator's values; `bedplate.folder.files` has the other files.
"""
