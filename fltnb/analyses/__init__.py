"""Functions of studies, by topic: the analyses of notebooks besides trainings.

Each is called with settings and returns a dict with any of ``numbers``, ``tables``
(DataFrames) and ``arrays``. The settings are in the notebooks.
"""
