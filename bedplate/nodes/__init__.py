"""The fleet's machines over SSH; knows no role and makes no AWS call."""
