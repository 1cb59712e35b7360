"""Forecast how stale a group will be when it is trained on, if the environments go on as they do now."""

from dataclasses import dataclass

from app.core.model import sequences_in
from app.core.replay.mixing import needed_from_queue
from app.core.runs.view import DemandView


@dataclass(frozen=True, slots=True)
class ExpectedStaleness:
    """The expected staleness of a group that starts now.

    Attributes:
        versions: Policy versions between sampling and training, about, ``>= 0``.
        waiting_sequences: Sequences that are queued or buffered.
        running_sequences: Sequences that environments generate now.
        batches_ahead: Batches that are trained on before the group's batch.
        detail: The same as a sentence.
    """

    versions: float
    waiting_sequences: int
    running_sequences: int
    batches_ahead: float
    detail: str


def staleness_forecast(view: DemandView) -> ExpectedStaleness | None:
    """Forecast the staleness of a group that is started now. None before the batch size is known.

    The oldest groups are trained on first. So everything that waits or runs now comes before the group:

        batches ahead = batches with trainers + batches trained on and in no version yet
                        + (waiting sequences + running sequences) / sequences of a batch from the queue
        staleness     = batches ahead * versions per batch

    A quarantined batch does not count: no trainer gets it. With `fresh_fraction`, a batch takes only its fresh part
    from the queue (`app.core.replay.mixing`). A run of R sequences at a time and an empty queue is thus
    ``R / batch_size`` versions behind, if each batch is fresh and makes a version. To halve the staleness, halve the
    sequences that run and wait. Minimum shares and groups that are dropped before they are trained on make the
    staleness of single environments differ.

    Args:
        view: The run. A running group has the declared size of its environment.
    """
    if view.config is None:
        return None
    waiting = sequences_in(view.lanes) + sequences_in(view.buffers)
    running = sum(
        max(0, groups) * view.environments[key].group_size
        for key, groups in view.running.items()
        if key in view.environments
    )
    leased = sum(lease.state != "quarantined" for lease in view.leases)
    begun = leased + max(0, view.trained.batches)
    batches = begun + (waiting + running) / _needed_from_queue(view)
    versions = batches * view.trained.versions_per_batch
    return ExpectedStaleness(versions, waiting, running, batches, _detail(view, versions, waiting, running, begun))


def _needed_from_queue(view: DemandView) -> int:
    return needed_from_queue(view.batch_size, view.policy.fresh_fraction, unfilled=view.unfilled)


def _detail(view: DemandView, versions: float, waiting: int, running: int, begun: int) -> str:
    whole, fresh = view.batch_size, _needed_from_queue(view)
    takes = f"has {whole} sequences" if fresh == whole else f"takes {fresh} of its {whole} sequences from the queue"
    begun_batches = "1 batch is leased or waits" if begun == 1 else f"{begun} batches are leased or wait"
    age = f"{versions:.3g} policy {'version' if f'{versions:.3g}' == '1' else 'versions'}"
    said = (
        f"a group that starts now will be about {age} old when it is trained on: {waiting} "
        f"sequences wait, {running} are being generated, {begun_batches} for a policy version, and a batch {takes}"
    )
    most = view.policy.max_staleness
    if most is None:
        return said
    if versions >= most + 1:
        return f"{said}; max_staleness is {most}, so such groups are dropped: start fewer groups at a time"
    return f"{said}; max_staleness is {most}"
