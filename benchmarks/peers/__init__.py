"""The same work done by other federated learning frameworks, in the same run as ours."""
