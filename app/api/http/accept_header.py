"""Read what clients say they accept (RFC 9110, 12.4.2)."""


def weights(header: str) -> dict[str, float]:
    """What a header of the ``Accept`` family names, in lower case and in its order, each with its weight; 0: not."""
    found: dict[str, float] = {}
    for item in header.lower().split(","):
        name, *parameters = (part.strip() for part in item.split(";"))
        if name:
            found.setdefault(name, _weight(parameters))
    return found


def _weight(parameters: list[str]) -> float:
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip() == "q":
            try:
                return float(value)
            except ValueError:
                return 0.0
    return 1.0
