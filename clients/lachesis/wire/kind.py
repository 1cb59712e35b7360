"""How a file of ours that is no blob, a frame or a batch, is told from one, and says what it holds."""

FORMAT = "lachesis"
"""Key of its metadata; the value is what it holds: ``groups``, ``fragments``, ``sample`` or ``batch``."""
