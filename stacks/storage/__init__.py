"""S3 buckets with replication, and EFS file systems, with their policies."""
