"""The errors that the service raises: those that it answers, which `lachesis.wire.errors` defines for the SDK too."""

from lachesis.wire.errors import *  # noqa: F403 - one list of errors, not two that must be kept equal
