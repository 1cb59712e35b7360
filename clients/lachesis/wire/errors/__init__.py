"""The errors that the service answers: the one definition of each, for the service, the SDK and the documents.

Each class has a ``code``, an HTTP ``status`` and a ``remedy``. Its docstring is its meaning in OpenAPI and in
docs/reference/errors.md (`make reference`). The service raises these classes, and the SDK raises them again.
Import all of them from here. Each class is in the module of its noun.
"""

from lachesis.wire.errors.access import *
from lachesis.wire.errors.base import LachesisError as LachesisError
from lachesis.wire.errors.base import ServiceError as ServiceError
from lachesis.wire.errors.base import descendants as descendants
from lachesis.wire.errors.batches import *
from lachesis.wire.errors.curriculum import *
from lachesis.wire.errors.datasets import *
from lachesis.wire.errors.environments import *
from lachesis.wire.errors.groups import *
from lachesis.wire.errors.replay import *
from lachesis.wire.errors.requests import *
from lachesis.wire.errors.runs import *
from lachesis.wire.errors.service import *
from lachesis.wire.errors.store import *

BY_CODE: dict[str, type[ServiceError]] = {cls.code: cls for cls in descendants(ServiceError)}
"""The class of each code."""
