"""The errors of the store: Redis and the records in it."""

from lachesis.wire.errors._base import ServiceError


class TooManyConflicts(ServiceError):
    """Other requests changed the same object during every attempt. Nothing of this request was stored."""

    code, status, retry_after_s = "too_many_conflicts", 503, 1.0
    remedy = "Send the request again in a second. If this lasts, send fewer requests at the same time."


class StoreUnavailable(ServiceError):
    """Redis did not answer in time. The outcome of the request is unknown."""

    code, status = "store_unavailable", 503
    remedy = "Send the request again: repetition is safe. If this lasts, check that Redis runs."
    retry_after_s: float | None = 2.0


class StoreFull(StoreUnavailable):
    """Redis is out of memory. Nothing of this request was stored. Earlier data stays."""

    code, status = "store_full", 507
    remedy = "Free memory: train or drop queued groups, lower replay limits, or raise `maxmemory` of Redis."
    retry_after_s = 10.0


class StoreRefused(StoreUnavailable):
    """Redis rejected a command: a key has another type than expected, or the ACL forbids the command."""

    code, status = "store_refused", 500
    remedy = "Check the ACL of the service's Redis user. Check that other programs write no keys under `lachesis:`."
    retry_after_s = None


class UnreadableRecord(StoreUnavailable):
    """A record of a run in Redis cannot be read, because another program changed it."""

    code, status = "unreadable_record", 500
    remedy = "Repair the record in Redis, or remove the run with `DELETE /v1/runs/{run}`."
    retry_after_s = None


class StoreMisconfigured(StoreUnavailable):
    """A setting, its file, or the configuration of Redis is wrong. The service does not start, or is not ready."""

    code = "store_misconfigured"
    remedy = "Change the setting that the message names, and start the service again."
