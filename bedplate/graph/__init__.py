"""Analysis of stack resources in the form that `bedplate graph` prints, whoever created them.

`audit` checks them against rules, `reach` traces packets through the network that they declare. The package imports
nothing of bedplate but its errors, and opens no file.
"""
