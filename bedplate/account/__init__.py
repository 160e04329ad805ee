"""A real AWS account, through boto3 with the operator's credentials; only Pulumi changes its resources."""
