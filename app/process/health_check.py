"""Check that the service of this container answers: ``python -m app.process.health_check``.

It reads the environment alone and imports little, because it runs every few seconds.
"""

import os
import ssl
from urllib.request import HTTPSHandler, ProxyHandler, build_opener

_TIMEOUT_S = 4.0


def check_health() -> None:
    """Ask ``/healthz``. It needs no credentials.

    Raises:
        OSError: There is no answer, or it is no success.
    """
    tls = bool(os.environ.get("LACHESIS_TLS_CERT"))
    context = ssl.create_default_context()
    # The certificate is for the name of the service. The answer comes from this container in any case.
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    host = os.environ.get("LACHESIS_HOST") or "127.0.0.1"  # on Linux, 0.0.0.0 and :: lead to this container, too
    place = f"[{host}]" if ":" in host else host
    address = f"{'https' if tls else 'http'}://{place}:{os.environ.get('LACHESIS_PORT') or 8000}"
    opener = build_opener(ProxyHandler({}), HTTPSHandler(context=context))  # Docker gives containers its HTTP_PROXY
    opener.open(f"{address}/healthz", timeout=_TIMEOUT_S).close()


if __name__ == "__main__":
    check_health()
