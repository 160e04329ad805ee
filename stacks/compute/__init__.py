"""Machines: launch templates, Auto Scaling groups, and the machines that are replaced one by one."""
