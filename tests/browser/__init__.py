"""The operators' page in a real browser: `make test-browser`."""
