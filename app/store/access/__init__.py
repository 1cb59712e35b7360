"""The records of tokens in Redis."""
