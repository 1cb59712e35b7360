"""Runnable comparisons: this service, Atropos's server from PyPI, and the limit of the same machine."""
