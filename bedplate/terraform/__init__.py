"""A graph in the form of a Terraform plan, for policy tools that read nothing else: no SDK, no file, no opinion."""
