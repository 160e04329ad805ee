"""The hub's front: nginx, the check of tokens for each request, and the mint of tokens for people."""
