"""All errors of the SDK.

`LachesisError` is the root. The classes here are those of the SDK itself. `ServiceError` and the classes below it, one
for each ``code`` of the service's replies, are in `lachesis.wire.errors`; docs/reference/errors.md lists them.
All errors can be pickled.
"""

from lachesis.wire.errors import *  # noqa: F403 - what the service answers is raised here under the same names
from lachesis.wire.errors import LachesisError as LachesisError


class Unreachable(LachesisError):
    """No reply came, although the request was repeated. The outcome of the request is unknown."""


class UntrustedCertificate(Unreachable):
    """The certificate of the service cannot be verified. The request was not sent."""


class NoBatch(LachesisError, TimeoutError):
    """No batch or sample came in time. The message says what the service waits for."""


class NoPermit(LachesisError, TimeoutError):
    """An environment got no permit in time. The message says why."""


class NoItem(LachesisError, TimeoutError):
    """A curriculum handed out no item in time. The message says why."""


class NotSent(LachesisError):
    """An environment could not send groups. As far as the SDK knows, none of them is stored.

    Attributes:
        failures: The error of each group, by the id of the group.
    """

    def __init__(self, failures: dict[str, LachesisError]) -> None:
        super().__init__(failures)
        self.failures = failures

    def __str__(self) -> str:
        first, reason = next(iter(self.failures.items()))
        others = f" ({len(self.failures) - 1} more were not sent either)" if len(self.failures) > 1 else ""
        return f"group {first} was not sent{others}: {reason}"

    def __repr__(self) -> str:
        return f"NotSent({str(self)!r})"


class FetchFailed(LachesisError):
    """A loader could not load a sample. The cause says why.

    Attributes:
        key: The key of the sample.
    """

    def __init__(self, key: object, reason: str) -> None:
        super().__init__(key, reason)
        self.key = key

    def __str__(self) -> str:
        return "{!r} could not be loaded: {}".format(*self.args)
