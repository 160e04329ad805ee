"""People's laptops: what OpenVPN is told on a gateway and on a laptop, and how keys that were taken back get there."""
