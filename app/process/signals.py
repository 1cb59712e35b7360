"""End processes in order on stop signals."""

import signal

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def raise_on_stop_signals() -> None:
    """Make stop signals raise KeyboardInterrupt, so that what is open is closed in order."""
    for number in STOP_SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:  # as under nohup
            signal.signal(number, signal.default_int_handler)
