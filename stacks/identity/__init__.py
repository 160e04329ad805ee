"""IAM roles of nodes and AWS services, policy documents, and KMS keys."""
