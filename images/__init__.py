"""Decisions about machine images: recipes, and the steps of a bake; values in, actions out."""
