"""IAM roles of nodes and AWS services, their policies, and KMS keys."""
