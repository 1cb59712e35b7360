"""The errors that the service raises. `lachesis.wire.errors` defines them for the SDK, too."""

from lachesis.wire.errors import *  # noqa: F403 - one list of errors, not two that must be kept equal
