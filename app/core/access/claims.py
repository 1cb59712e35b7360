"""Whether the claims of a verified JWT are for this service, and what they allow."""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from app.core.access.identity import matches
from lachesis.wire.access import Role
from lachesis.wire.limits import QueueLimitSettings, RateLimitSettings

LEEWAY_S = 30.0
"""By how much the clocks of the issuer and of Redis may differ, seconds."""
MAX_SUBJECT = 512
MAX_ENVIRONMENT_NAME = 128

Claims = Mapping[str, Any]

PLACEHOLDER = re.compile(r"\{([^{}]+)\}")
_RUN_TEXT = re.compile(r"[A-Za-z0-9._-]{1,64}")  # without `*`: a claim never becomes a pattern


@dataclass(frozen=True, slots=True)
class ClaimRule:
    """A rule that turns a claim into a role.

    A claim is named by its key. A name that begins with `/` is a JSON Pointer to a nested claim, for example
    ``/kubernetes.io/namespace``. ``{CLAIM}`` in a run or an environment stands for the value of a claim. If it is the
    claim of the rule, it stands only for values that match the rule.

    Attributes:
        claim: The claim that the rule looks at.
        value: A pattern: `*` stands for any characters. A list of values matches if one of them does.
        role: The role.
        runs: The runs, as in `Identity`, with at most one placeholder each.
        environment: The only environment; None for any.
        contents: Whether a viewer may read contents of groups.
        limits: What each account that it lets in may send per second; None for no limits.
        queue_limits: What each of them may have in the queue of each run; None for no limits.
    """

    claim: str
    value: str
    role: Role
    runs: tuple[str, ...]
    environment: str | None = None
    contents: bool = False
    limits: RateLimitSettings | None = None
    queue_limits: QueueLimitSettings | None = None


@dataclass(frozen=True, slots=True)
class JwtTrust:
    """Whose tokens are accepted, and what they allow.

    Attributes:
        issuer: The URL of the issuer, as in the claim `iss`.
        audience: The audience that the service is, as in the claim `aud`.
        jwks_url: Where the issuer's keys are; None finds the address by OIDC discovery.
        rules: What the claims allow.
    """

    issuer: str
    audience: str
    jwks_url: str | None
    rules: tuple[ClaimRule, ...]


class Grant(NamedTuple):
    """What a JWT or a certificate allows: the fields of `Identity` with these names."""

    role: Role
    runs: tuple[str, ...]
    environment: str | None
    contents: bool
    limits: RateLimitSettings | None = None
    queue_limits: QueueLimitSettings | None = None


def claims_problem(claims: Claims, issuer: str, audience: str, now_s: float) -> str | None:
    """Say why a service must not accept claims; None if it may. Only claims with a valid signature come here.

    Args:
        claims: The claims.
        issuer: The issuer that the service trusts.
        audience: The audience that the service is.
        now_s: The time, seconds since 1970.
    """
    audiences, subject = claims.get("aud"), claims.get("sub")
    if claims.get("iss") != issuer:
        return "the token is of another issuer"
    if audience != audiences and not (isinstance(audiences, list) and audience in audiences):
        return "the token is for another audience"
    if not isinstance(subject, str) or not 0 < len(subject) <= MAX_SUBJECT or not subject.isprintable():
        return f"the claim sub of the token is not text of 1 to {MAX_SUBJECT} printable characters"
    if "exp" not in claims:
        return "the token has no claim exp"
    for name in ("exp", "nbf", "iat"):
        if name in claims and not _is_time(claims[name]):
            return f"the claim {name} of the token is not a time"
    if now_s >= claims["exp"] + LEEWAY_S:
        return "the token has expired"
    if now_s < max(claims.get("nbf", -math.inf), claims.get("iat", -math.inf)) - LEEWAY_S:
        return "the token is not valid yet"
    return None


def grant_of(rules: Sequence[ClaimRule], claims: Claims) -> Grant | None:
    """Return what the first rule that matches allows; None if none does.

    A run with a placeholder counts only if the claim has a value that fits: text of letters, digits, `.`, `_` and `-`.
    A claim with several values stands for one run each. A rule with runs matches if one of them is left. A placeholder
    of the environment needs exactly one text.
    """
    for rule in rules:
        if not _matching(rule, claims):
            continue
        runs = tuple(dict.fromkeys(run for template in rule.runs for run in _filled(template, rule, claims, _RUN_TEXT)))
        environments = [None] if rule.environment is None else list(_filled(rule.environment, rule, claims))
        if (rule.runs and not runs) or len(environments) != 1 or len(environments[0] or "") > MAX_ENVIRONMENT_NAME:
            continue
        return Grant(rule.role, runs, environments[0], rule.contents, rule.limits, rule.queue_limits)
    return None


def texts_of(claims: Claims, name: str) -> list[str]:
    """Return the values of a claim as texts. Objects have none. A missing claim has none."""
    value: Any = claims
    for key in _path(name):
        value = value.get(key) if isinstance(value, Mapping) else None
    return [_text(one) for one in (value if isinstance(value, list) else [value]) if isinstance(one, (str, int))]


def _is_time(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 2**53


def _path(name: str) -> list[str]:
    if not name.startswith("/"):
        return [name]
    return [key.replace("~1", "/").replace("~0", "~") for key in name[1:].split("/")]


def _text(value: str | int) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _matching(rule: ClaimRule, claims: Claims) -> list[str]:
    return [text for text in texts_of(claims, rule.claim) if matches(rule.value, text)]


def _filled(template: str, rule: ClaimRule, claims: Claims, fitting: re.Pattern[str] | None = None) -> Iterator[str]:
    """Put each value of the claim in the place of the placeholder."""
    placeholder = PLACEHOLDER.search(template)
    if placeholder is None:
        yield template
        return
    is_own = _path(placeholder[1]) == _path(rule.claim)
    for text in _matching(rule, claims) if is_own else texts_of(claims, placeholder[1]):
        if text and (fitting is None or fitting.fullmatch(text)):
            yield template.replace(placeholder[0], text)
