"""A Flower App with clusters: the settings are in pyproject.toml, what to change for your own data in task.py."""
