"""The public classes for code without an event loop."""
