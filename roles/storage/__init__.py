"""Shared storage of a node: NFS and EFS mounts, NFS exports and S3 buckets, which never hang the node."""
