"""Save a curriculum as a document with a header and an entry for each item. A restored one gives the same samples."""

import reprlib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from pydantic import ValidationError

from app.core.curriculum.checks import check_settings
from app.core.curriculum.estimates import Estimate, unseen
from lachesis.wire.curricula import MAX_REWARD, CurriculumSettings
from lachesis.wire.errors import InvalidField
from lachesis.wire.problems import format_validation_error

FORMAT, VERSION = "lachesis.curriculum", 1
_MOST_AVERAGED = 2 * MAX_REWARD  # rounding may take an average of the largest rewards beyond them
_MOST_SUMMED = 1e100


@dataclass(frozen=True, slots=True)
class CurriculumHeader:
    """A curriculum without its items.

    Attributes:
        settings: Its settings, the generator's seed included.
        counter: How often the generator drew.
        samples: Samples so far.
        updates: Observations so far.
        arms: The bandit's values by key.
    """

    settings: CurriculumSettings = field(default_factory=CurriculumSettings)
    counter: int = 0
    samples: int = 0
    updates: int = 0
    arms: Mapping[str, float] = field(default_factory=dict)


def state_dict(header: CurriculumHeader) -> dict[str, Any]:
    """Return the header as a JSON object."""
    return {
        "format": FORMAT,
        "version": VERSION,
        "policy": header.settings.model_dump(),
        "generator": "Philox",
        "counter": header.counter,
        "samples": header.samples,
        "updates": header.updates,
        "arms": dict(header.arms),
    }


def load_state_dict(document: Mapping[str, Any]) -> CurriculumHeader:
    """Read what `state_dict` wrote.

    Raises:
        InvalidField: Something is missing, unknown, or out of range; `location` says where.
    """
    fixed = {"format": FORMAT, "version": VERSION, "generator": "Philox"}
    numbers = ("counter", "samples", "updates")
    _names(document, {*fixed, *numbers, "policy", "arms"}, all_of_them=True)
    for name, value in fixed.items():
        if document[name] != value:
            raise InvalidField(f"is {reprlib.repr(document[name])}, not {value!r}", (name,))
    arms = _mapping(document["arms"], "arms")
    return CurriculumHeader(
        settings=load_settings(_mapping(document["policy"], "policy"), ("policy",)),
        arms={key: read_number(value, ("arms", key)) for key, value in arms.items()},
        **{name: read_whole(document[name], (name,)) for name in numbers},
    )


def load_settings(document: Mapping[str, Any], location: tuple[str, ...] = ()) -> CurriculumSettings:
    """Read settings by name. Settings that are left out have their defaults.

    Args:
        document: The settings.
        location: The location of the settings, for the error.

    Raises:
        InvalidField: Something is unknown, or out of range; `location` says where.
    """
    try:
        settings = CurriculumSettings.model_validate(document, strict=True)
        check_settings(settings)
    except ValidationError as wrong:
        first = wrong.errors()[0]
        message = "is unknown" if first["type"] == "extra_forbidden" else format_validation_error(first)
        raise InvalidField(message, (*location, *first["loc"])) from None
    except InvalidField as wrong:
        raise InvalidField(wrong.message, (*location, *wrong.location)) from None
    return settings


def estimate_dict(estimate: Estimate) -> dict[str, Any]:
    """Return an item's numbers as a JSON object. Numbers that have their defaults are left out."""
    return {
        each.name: value for each in fields(estimate) if (value := getattr(estimate, each.name)) not in (0, None)
    } | ({} if estimate.prior is None else {"prior": estimate.prior})


def load_estimate_dict(document: Mapping[str, Any]) -> Estimate:
    """Read what `estimate_dict` wrote.

    Raises:
        InvalidField: Something is unknown or out of range; `location` says where.
    """
    _names(document, {each.name for each in fields(Estimate)})
    counted = {name: read_whole(document.get(name, 0), (name,)) for name in ("count", "drawn")}
    sums = {name: read_number(document.get(name, 0), (name,), _MOST_SUMMED) for name in ("passed", "failed")}
    sums["signal"] = read_number(document.get("signal", 0), ("signal",))
    means = {name: read_number(document.get(name, 0), (name,)) for name in ("ema", "last")}
    given = document.get("prior")
    prior = None if given is None else read_number(given, ("prior",))
    found = Estimate(means["ema"], counted["count"], **sums, last=means["last"], drawn=counted["drawn"], prior=prior)
    for name in sums:
        if sums[name] < 0:
            raise InvalidField(f"should be 0 or more, not {sums[name]}", (name,))
    if found.count == 0 and found != Estimate(found.ema, drawn=found.drawn, prior=found.prior):
        raise InvalidField("is 0, but passed, failed, last or signal is not: these come from observations", ("count",))
    if found.count == 0 and found.ema != unseen(found.prior).ema:
        raise InvalidField(f"is {found.ema}, but should be the prior, or 0 without one, while count is 0", ("ema",))
    return found


def read_whole(value: object, location: tuple[str | int, ...]) -> int:
    """Read a whole number from 0 to 2**53.

    Raises:
        InvalidField: The value is something else.
    """
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= 2**53:
        raise InvalidField(f"is {reprlib.repr(value)}, not a whole number from 0 to 2**53", location)
    return value


def read_number(value: object, location: tuple[str | int, ...], most: float = _MOST_AVERAGED) -> float:
    """Read a finite number with a magnitude of at most ``most``. The default suits averages of rewards.

    Raises:
        InvalidField: The value is something else.
    """
    if not isinstance(value, int | float) or isinstance(value, bool) or not abs(value) <= most:
        raise InvalidField(f"is {reprlib.repr(value)}, not a number from {-most:g} to {most:g}", location)
    return float(value)


def _names(
    document: Mapping[str, Any], known: set[str], location: tuple[str, ...] = (), all_of_them: bool = False
) -> None:
    for name in document:
        if name not in known:
            raise InvalidField("is unknown", (*location, name))
    for name in sorted(known - document.keys() if all_of_them else ()):
        raise InvalidField("is required", (*location, name))


def _mapping(value: object, name: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise InvalidField("should be an object", (name,))
    return value
