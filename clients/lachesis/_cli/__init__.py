"""The command line of the SDK. It needs the extra ``cli``."""
