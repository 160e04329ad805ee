"""The role `mlflow`: the server of the records, with all its packages locked."""
