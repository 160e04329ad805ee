"""Route 53: the private zone, its records, reverse zones, and resolver endpoints for laptops and sites."""
