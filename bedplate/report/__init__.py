"""The text and JSON that commands print: values in, lines or documents out. Nothing here prints or colours.

The result comes first, one line is one fact, figures have units, and lines fit 100 columns.
"""
