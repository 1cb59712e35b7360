"""The errors that the service answers: the one definition of each, for the service, the SDK and the documents.

Each class has a ``code``, an HTTP ``status`` and a ``remedy``. Its docstring is its meaning in OpenAPI and in
docs/reference/errors.md (`make reference`). The service raises these classes, and the SDK raises them again.
Import all of them from here. Each class is in the module of its noun.
"""

from lachesis.wire.errors._access import *
from lachesis.wire.errors._base import LachesisError as LachesisError
from lachesis.wire.errors._base import ServiceError as ServiceError
from lachesis.wire.errors._base import descendants as descendants
from lachesis.wire.errors._batches import *
from lachesis.wire.errors._curriculum import *
from lachesis.wire.errors._datasets import *
from lachesis.wire.errors._environments import *
from lachesis.wire.errors._groups import *
from lachesis.wire.errors._replay import *
from lachesis.wire.errors._requests import *
from lachesis.wire.errors._runs import *
from lachesis.wire.errors._service import *
from lachesis.wire.errors._store import *

BY_CODE: dict[str, type[ServiceError]] = {cls.code: cls for cls in descendants(ServiceError)}
"""The class of each code."""

for _error in (LachesisError, ServiceError, *descendants(ServiceError)):
    _error.__module__ = __name__  # tracebacks and pickles name the package
