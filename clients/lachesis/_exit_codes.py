"""The exit codes of the command line. `ping`, which works without the extra ``cli``, has the same ones."""

from lachesis.errors import InvalidField, LachesisError, PermissionDenied, Unauthorized, Unreachable

WELL = 0
"""All is well."""

UNHEALTHY = 1
"""The answer is no, or the run needs attention."""

WRONG_USE = 2
"""The command line, a setting or a file is wrong."""

UNREACHABLE = 3
"""The service does not answer."""

NOT_ALLOWED = 4
"""The token does not allow it."""

INTERRUPTED = 130
"""Ctrl+C ended it before it was done: 128 and the number of the signal, as shells have it."""

PIPE_CLOSED = 141
"""The program that read the output has ended, as `head` does: 128 and the number of SIGPIPE."""


def code_of(error: LachesisError) -> int:
    """Return the exit code of an error."""
    if isinstance(error, Unreachable):
        return UNREACHABLE
    if isinstance(error, InvalidField):
        return WRONG_USE
    return NOT_ALLOWED if isinstance(error, Unauthorized | PermissionDenied) else UNHEALTHY
