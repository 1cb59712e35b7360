"""The metadata that distinguishes frames and batches from blobs: all three are safetensors files."""

FORMAT = "lachesis"
"""Key of the metadata of a frame or a batch. Its value is ``groups``, ``fragments``, ``sample`` or ``batch``."""
