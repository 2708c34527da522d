"""Functions of studies, by topic: what pages analyse besides trainings.

Each is called with settings and returns a dict with any of ``numbers``, ``tables``
(DataFrames) and ``arrays``. Settings stand in the notebooks.
"""
