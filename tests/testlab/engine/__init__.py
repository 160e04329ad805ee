"""Pulumi's real engine against the rehearsal's resource models, over the provider protocol."""
