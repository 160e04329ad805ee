"""What a node is made to be: roles of three stages, run by pyinfra on the machines of the cloud and of sites alike.

Everything that a role puts on a machine lies beside it. Roles take values of the plan; none reads the fleet file.
"""
