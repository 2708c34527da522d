"""A Flower App with clusters.

Its settings are in pyproject.toml; what to change for your own data is in task.py.
"""
