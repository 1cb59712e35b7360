"""Where the service is, and how patient to be with it."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields

_PREFIX = "LACHESIS_"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How to reach the service. `from_env` reads each from the variable ``LACHESIS_`` and its name in capitals.

    Attributes:
        url: The service, such as ``http://lachesis:8000``. A path in it is kept.
        run: The run that is meant.
        connect_timeout_s: For a connection to be made.
        timeout_s: For the service to go on with a request or reply that has stopped. A wait for a batch is added to it.
        retry_budget_s: How long a request is repeated that got no answer, or that the service could not serve just
            then, before its error is raised. 0: it is sent once.
    """

    url: str = "http://127.0.0.1:8000"
    run: str = "default"
    connect_timeout_s: float = 5.0
    timeout_s: float = 30.0
    retry_budget_s: float = 60.0

    def __post_init__(self) -> None:
        if not self.url.startswith(("http://", "https://")):
            raise ValueError(f"url: should start with http:// or https://, not {self.url!r}")
        if not self.run or "/" in self.run:
            raise ValueError(f"run: should be the name of a run, not {self.run!r}")
        if min(self.connect_timeout_s, self.timeout_s) <= 0:
            raise ValueError("connect_timeout_s, timeout_s: should be above 0")
        if not 0 <= self.retry_budget_s < float("inf"):
            raise ValueError(f"retry_budget_s: should be 0 or more, not {self.retry_budget_s}")

    @classmethod
    def from_env(cls, environ: Mapping[str, str] | None = None, **given: str | float) -> "Settings":
        """Read the settings from the environment; a variable that is not set leaves the default.

        Args:
            environ: Other variables than those of this process.
            given: Settings by name that count more than their variables.

        Raises:
            ValueError: A variable does not hold what it should; the message names it.
        """
        variables = os.environ if environ is None else environ
        values: dict[str, str | float] = {}
        for field in fields(cls):
            text = variables.get(_PREFIX + field.name.upper())
            if text is not None and field.name not in given:
                values[field.name] = text if field.type is str else _number(_PREFIX + field.name.upper(), text)
        return cls(**(values | given))  # type: ignore[arg-type]


def _number(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"{name}: should be a number, not {text!r}") from None
