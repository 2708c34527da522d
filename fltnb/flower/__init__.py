"""Clustered federated learning between real machines, with Flower (flwr 1.41).

A node answers a query with its sketch (:func:`sketch_query`); the server
(:class:`ClusteredFedAvg`) clusters these and averages inside the clusters. With equal
seeds and all nodes connected, it gives the result of FLT in ``fl.run``. A common scale
for all nodes is computed from sums that they send (:func:`scaling_query`). See
``docs/flower.md``.
"""

from .node import sketch_query
from .scaling import Scaling, scaling_of, scaling_query
from .server import Client, ClusteredFedAvg

__all__ = [
    "Client",
    "ClusteredFedAvg",
    "Scaling",
    "scaling_of",
    "scaling_query",
    "sketch_query",
]
