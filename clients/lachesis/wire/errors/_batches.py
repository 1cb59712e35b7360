"""The errors of batches, and of the ranks that share them."""

from lachesis.wire.errors._requests import Conflict, NotFound


class BatchNotFound(NotFound):
    """The run has no batch of this id, or has forgotten it."""

    code = "batch_not_found"
    remedy = "Take another batch. `GET /v1/runs/{run}/batches` lists those that trainers hold."


class LeaseLost(Conflict):
    """The lease of the batch or sample has ended, or another trainer has the batch or sample."""

    code = "lease_lost"
    remedy = "Drop the data and take another batch or sample."


class BatchInUse(Conflict):
    """The batch is not quarantined: a trainer holds it or will get it."""

    code = "batch_in_use"
    remedy = "Drop quarantined batches only. Acknowledge or nack other batches."


class RewindImpossible(Conflict):
    """The run no longer keeps all batches after the step."""

    code = "rewind_impossible"
    remedy = "Rewind to a later step. Raise `keep_batches` and `keep_bytes` to keep more batches from now on."


class RunRewound(Conflict):
    """The run was rewound after this trainer began."""

    code = "run_rewound"
    remedy = "Load the saved state and start the training loop again."


class RanksDisagree(Conflict):
    """This rank asks for another division of the batch than the ranks before it."""

    code = "ranks_disagree"
    remedy = "Give all ranks the same world size, cost and limits."


class StepMismatch(Conflict):
    """The next batch for this rank belongs to another step than the rank is at."""

    code = "step_mismatch"
    remedy = "Load the same saved state on all ranks, and rewind the run to its step."
