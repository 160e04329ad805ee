"""S3 buckets and EFS file systems, their policies and copies."""
