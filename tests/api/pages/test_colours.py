"""The colours of the page can be read and told apart, in both themes."""

import itertools
import re
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

TOKENS = Path(__file__).parents[3] / "app" / "api" / "pages" / "static" / "css" / "tokens.css"
THEMES = ("light", "dark")
PAPERS = ("paper", "paper-2")
TEXT = ("ink", "ink-2", "accent", "good", "wait", "warn", "bad", "idle")
STATES = ("good", "warn", "bad")
HUES = tuple(f"hue-{number}" for number in range(8))
REASONS = tuple(f"reason-{kind}" for kind in ("age", "fault", "limit", "filter"))
MARKS = (*HUES, *REASONS, "edge", "filtered")
TEXT_CONTRAST, MARK_CONTRAST = 4.5, 3.0  # WCAG 2.2: 1.4.3 and 1.4.11
LEAST_DISTANCE = 0.055  # in OKLab, where 1 is from black to white
LEAST_DISTANCE_TO_STATES = 0.08
LEAST_ANGLE_TO_BAD = 30  # degrees of hue: within them a strong colour is a red

# Machado, Oliveira & Fernandes (2009), severity 1: what linear RGB looks like without one kind of cones.
SIGHTS = {
    "all cones": np.eye(3),
    "deuteranopia": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
    "protanopia": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
}
# Ottosson (2020): linear RGB to cones, and their cube roots to OKLab.
CONES = np.array(
    [[0.4122214708, 0.5363325363, 0.0514459929], [0.2119034982, 0.6806995451, 0.1073969566],
     [0.0883024619, 0.2817188376, 0.6299787005]]
)  # fmt: skip
OKLAB = np.array(
    [[0.2104542553, 0.7936177850, -0.0040720468], [1.9779984951, -2.4285922050, 0.4505937099],
     [0.0259040371, 0.7827717662, -0.8086757660]]
)  # fmt: skip
Colour = NDArray[np.float64]


def themes() -> dict[str, dict[str, str]]:
    """The colours of each theme."""
    blocks = re.findall(r"color-scheme: (\w+);(.*?)\}", TOKENS.read_text(), re.S)
    assert [scheme for scheme, _ in blocks] == list(THEMES), "each is stated once"
    return {scheme: dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", block)) for scheme, block in blocks}


def linear(colour: str) -> Colour:
    coded = np.array([int(colour[at : at + 2], 16) for at in (1, 3, 5)]) / 255
    return np.where(coded <= 0.04045, coded / 12.92, ((coded + 0.055) / 1.055) ** 2.4)


def contrast(one: str, other: str) -> float:
    lighter, darker = sorted(float(linear(colour) @ (0.2126, 0.7152, 0.0722)) for colour in (one, other))[::-1]
    return (lighter + 0.05) / (darker + 0.05)


def seen(colour: str, sight: Colour) -> Colour:
    return OKLAB @ np.cbrt(CONES @ np.clip(sight @ linear(colour), 0, 1))


def angle(colour: str) -> float:
    """The hue of a colour as all cones see it, in degrees."""
    _, green_red, blue_yellow = seen(colour, SIGHTS["all cones"])
    return float(np.degrees(np.arctan2(blue_yellow, green_red)))


def too_close(
    pairs: Iterable[tuple[str, str]], colours: dict[str, str], sight: Colour, least: float = LEAST_DISTANCE
) -> dict[tuple[str, str], float]:
    """Pairs of names whose colours look alike, and how far apart they are."""
    distances = {pair: seen(colours[pair[0]], sight) - seen(colours[pair[1]], sight) for pair in pairs}
    found = {pair: round(float(np.linalg.norm(distance)), 3) for pair, distance in distances.items()}
    return {pair: distance for pair, distance in found.items() if distance < least}


@pytest.mark.parametrize("theme", THEMES)
def test_a_theme_has_all_colours(theme: str) -> None:
    assert set(themes()[theme]) >= {*PAPERS, *TEXT, *MARKS}


@pytest.mark.parametrize("paper", PAPERS)
@pytest.mark.parametrize("theme", THEMES)
def test_text_and_marks_stand_out(theme: str, paper: str) -> None:
    colours = themes()[theme]
    faint = {
        name: round(found, 2)
        for names, least in ((TEXT, TEXT_CONTRAST), (MARKS, MARK_CONTRAST))
        for name in names
        if (found := contrast(colours[name], colours[paper])) < least
    }
    assert faint == {}


@pytest.mark.parametrize("sight", SIGHTS)
@pytest.mark.parametrize("theme", THEMES)
def test_the_colours_of_environments_differ_for_everyone(theme: str, sight: str) -> None:
    colours = themes()[theme]
    assert too_close(itertools.combinations(HUES, 2), colours, SIGHTS[sight]) == {}


@pytest.mark.parametrize("sight", SIGHTS)
@pytest.mark.parametrize("theme", THEMES)
def test_the_colours_of_reasons_differ_for_everyone(theme: str, sight: str) -> None:
    assert too_close(itertools.combinations(REASONS, 2), themes()[theme], SIGHTS[sight]) == {}


@pytest.mark.parametrize("theme", THEMES)
def test_no_colour_of_a_reason_looks_like_an_environment_or_a_state(theme: str) -> None:
    pairs = itertools.product(REASONS, (*HUES, *STATES))
    assert too_close(pairs, themes()[theme], SIGHTS["all cones"]) == {}


@pytest.mark.parametrize("theme", THEMES)
def test_no_colour_of_an_environment_looks_like_a_state(theme: str) -> None:
    colours = themes()[theme]
    pairs = itertools.product(HUES, STATES)
    assert too_close(pairs, colours, SIGHTS["all cones"], LEAST_DISTANCE_TO_STATES) == {}
    turns = {name: (angle(colours[name]) - angle(colours["bad"]) + 180) % 360 - 180 for name in HUES}
    assert {name: round(turn) for name, turn in turns.items() if abs(turn) < LEAST_ANGLE_TO_BAD} == {}, "it is a red"


def test_contrast_is_that_of_the_standard() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)
