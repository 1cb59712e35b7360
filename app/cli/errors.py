"""Errors of writing or drawing a plan."""


class NotWritten(Exception):
    """Nothing was written. The message says why, and what to do."""
