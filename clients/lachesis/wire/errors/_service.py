"""The errors of the service as a process."""

from lachesis.wire.errors._base import ServiceError


class MaintenanceEnded(ServiceError):
    """Background maintenance has ended in this API process. Only `/readyz` returns this error."""

    code, status, retry_after_s = "maintenance_ended", 503, 2.0
    remedy = "Restart the process. Its log says why maintenance ended."


class ServiceStopping(ServiceError):
    """The service stops, and the body of the request was still on its way. Nothing of it was stored."""

    code, status, retry_after_s = "service_stopping", 503, 2.0
    remedy = "Send the request again. If this lasts, start the service."


class InternalError(ServiceError):
    """A bug of the service."""

    code = "internal_error"
    remedy = "Report the bug with the traceback in the log of the service."
