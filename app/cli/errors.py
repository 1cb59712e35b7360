"""Why a plan was not written or drawn."""


class NotWritten(Exception):
    """Nothing was written; the message says why, and what helps."""
