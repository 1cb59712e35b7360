"""Authentication: the sources of identities, and the tokens."""
