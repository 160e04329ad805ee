"""The base configuration of every node: host name, clock, locale, apt, limits and sysctls."""
