"""The bundle that nodes run: code and wheels as archives named by their SHA-256, and the rings that name a bundle."""
