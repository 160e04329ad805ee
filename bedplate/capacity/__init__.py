"""Decisions about the number of machines of a group: values and the time in, actions with reasons out."""
