"""EC2 machines: launch templates, Auto Scaling groups of pools, and single instances behind a fixed interface."""
