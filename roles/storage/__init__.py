"""What a node mounts and exports: shared homes and data, none of which hangs it when their server is gone."""
