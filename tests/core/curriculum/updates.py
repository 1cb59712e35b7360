"""The update of an estimate, which only a script carries out in the service."""

from dataclasses import replace

from app.core.curriculum.estimates import Estimate, EstimateUpdate, LeakyUpdate


def after(estimate: Estimate, change: EstimateUpdate) -> Estimate:
    """Return an estimate after an observation.

    `lua/curriculum/curriculum_estimates.lua` does the same.
    """
    first = estimate.count == 0

    def stepped(number: float, step: LeakyUpdate) -> float:
        return step.first if first else step.keep * number + step.gain

    return replace(
        estimate,
        ema=stepped(estimate.ema, change.ema),
        count=estimate.count + 1,
        passed=stepped(estimate.passed, change.passed),
        failed=stepped(estimate.failed, change.failed),
        signal=stepped(estimate.signal, change.signal),
        last=stepped(estimate.last, change.last),
    )
