"""The role `postgres`: PostgreSQL on the volume of the hub, for the records of runs."""
