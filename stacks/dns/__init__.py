"""The private zone, its records, and the resolver that laptops and sites ask."""
