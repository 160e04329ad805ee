"""A real AWS account, through boto3 with the operator's credentials; resources are declared by Pulumi only."""
