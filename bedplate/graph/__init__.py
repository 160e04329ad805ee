"""The resources of stacks as `bedplate graph` prints them: audited, walked and converted."""
