"""Who may do what: identities, permissions and tokens."""
