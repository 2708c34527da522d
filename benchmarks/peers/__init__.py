"""The same work by other federated learning frameworks, in the same run as ours."""
