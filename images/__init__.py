"""Machine images: recipes, the steps of a bake and the images in the account; the cleaning script of instances."""
