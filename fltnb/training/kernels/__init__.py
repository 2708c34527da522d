"""Compiled kernels of the CPU workers: dense layers, narrow and wide convolutions."""
