"""What an operator reads: values in, lines of text or JSON documents out; never prints, never colours.

The answer comes first, one line is one fact, figures have their units, and 100 columns are enough.
"""
