"""The hub's check of requests and its mint of tokens: who a caller is, what each may do, and what the hub remembers."""
