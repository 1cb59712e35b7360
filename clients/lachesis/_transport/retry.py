"""Decide when to send a request again: full jitter, under a budget of time.

Source: M. Brooker, *Exponential Backoff And Jitter* (AWS Architecture Blog, 2015): "full jitter".
"""

import math
from dataclasses import dataclass
from random import Random

from lachesis._transport.protocol import is_from_gateway
from lachesis.errors import BodyTooLarge, LachesisError, ServiceError, Unauthorized, Unreachable, UntrustedCertificate
from lachesis.wire.errors import BY_CODE

_LONGEST_PAUSE_S = 3600.0  # a gateway may name any time
_OF_PROXIES = frozenset({502, 504})
PASSING = _OF_PROXIES | {error.status for error in BY_CODE.values() if error.retry_after_s is not None}
"""Statuses after which the same request may succeed a moment later, for errors that this version does not know."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """The pause before each repetition of a request.

    Attributes:
        budget_s: Seconds after the first failure in which the request is repeated. With 0 it is sent once. With
            infinity it is also repeated after mendable errors.
        base_s: Upper bound of the first pause. The bound doubles with each attempt.
        cap_s: Largest upper bound.
    """

    budget_s: float
    base_s: float = 0.1
    cap_s: float = 5.0

    def pause_s(self, error: LachesisError, attempt: int, elapsed_s: float, random: Random) -> float | None:
        """Return how long to wait before the request is sent again.

        Args:
            error: How the last attempt ended.
            attempt: Attempts so far, ``>= 1``.
            elapsed_s: Time since the first failed.
            random: Generator of the jitter.

        Returns:
            Seconds, or None: do not send it again.
        """
        if not (passes(error) or (math.isinf(self.budget_s) and is_mendable(error))):
            return None
        longest_s = min(self.cap_s, self.base_s * 2.0 ** min(attempt - 1, 30))
        least_s = min(error.retry_after_s or 0.0, _LONGEST_PAUSE_S) if isinstance(error, ServiceError) else 0.0
        left_s = self.budget_s - elapsed_s - least_s
        return least_s + min(random.uniform(0, longest_s), left_s) if left_s > 0 else None


def passes(error: LachesisError) -> bool:
    """Return whether the same request may succeed a moment later."""
    if not isinstance(error, ServiceError):
        return isinstance(error, Unreachable) and not isinstance(error, UntrustedCertificate)
    known = BY_CODE.get(error.code)
    return error.status in PASSING if known is None else known.retry_after_s is not None


def is_mendable(error: LachesisError) -> bool:
    """Return whether an operator can make the same request succeed: with a token, a certificate, or another gateway.

    A gateway that finds the request too large refuses it for good, as the service does.
    """
    if isinstance(error, Unauthorized | UntrustedCertificate):
        return True
    return isinstance(error, ServiceError) and is_from_gateway(error) and error.status != BodyTooLarge.status
