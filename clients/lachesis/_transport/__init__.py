"""How requests reach the service: protocol, HTTP, retries, settings, and the bridge to threads."""
