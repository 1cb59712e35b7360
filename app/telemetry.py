"""Declare every metric once. `make reference` writes docs/reference/metrics.md from this module.

Labels are bounded: runs by `app.store.runs.store.MOST_RUNS`, environments by `app.services.metrics`, routes and states
by the code. A metric that may fall, for example after a rewind, is a gauge, even if it resembles a counter.
Prometheus treats a counter that falls as restarted.
"""

from dataclasses import dataclass
from enum import StrEnum

DURATION_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""Upper bounds of the durations of requests, seconds, from a stored group to a long poll."""


class Kind(StrEnum):
    """How Prometheus reads a metric."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"
    SUMMARY = "summary"


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric.

    Attributes:
        name: Its name, which ends with the unit. The name of a counter ends with ``_total``.
        kind: How Prometheus reads it.
        labels: The names of its labels, in the order of their values.
        meaning: One sentence.
    """

    name: str
    kind: Kind
    labels: tuple[str, ...]
    meaning: str


# Of the API process that answers.
HTTP_REQUESTS = Metric(
    "lachesis_http_requests_total",
    Kind.COUNTER,
    ("process", "method", "route", "status"),
    "Requests. `route` is the template, such as `/v1/runs/{run}/groups`, or `none`; paths of Atropos below "
    "`/runs/{run}/atropos` count as those at the root. `status` is `none` if there was no answer, because the "
    "client had gone or the service was ending.",
)
HTTP_DURATION = Metric(
    "lachesis_http_request_duration_seconds",
    Kind.HISTOGRAM,
    ("process", "route"),
    "Seconds from a request's headers to the end of its answer, long polls included.",
)
BATCHES_HANDED_OUT = Metric(
    "lachesis_batches_handed_out_total",
    Kind.COUNTER,
    ("process",),
    "Batches, and shards of batches, handed out to trainers, repetitions included.",
)
LONG_POLLS_WAITING = Metric(
    "lachesis_long_polls_waiting", Kind.GAUGE, ("process",), "Requests that wait for a batch now."
)
REPLAY_REQUESTS_BLOCKED = Metric(
    "lachesis_replay_requests_blocked_total",
    Kind.COUNTER,
    ("process", "side"),
    "Requests to a replay buffer that could not be answered at once: `insert` or `sample`. The rate limiter "
    "blocked them, or there were too few chunks.",
)
REPLAY_REQUESTS_WAITING = Metric(
    "lachesis_replay_requests_waiting", Kind.GAUGE, ("process", "side"), "Requests to a replay buffer that wait now."
)
STORE_UP = Metric(
    "lachesis_store_up",
    Kind.GAUGE,
    ("process",),
    "Whether Redis answered this scrape: 1 or 0.",
)

UPKEEP_FAILING = Metric(
    "lachesis_upkeep_failing",
    Kind.GAUGE,
    ("process", "run"),
    "Whether maintenance of the run fails in this process: 1 or 0.",
)

# Of runs, the same from every API process.
RUN_READABLE = Metric(
    "lachesis_run_readable",
    Kind.GAUGE,
    ("run",),
    "Whether this scrape could read the whole run: 1, or 0 if metrics of it are missing.",
)
STEP = Metric("lachesis_step", Kind.GAUGE, ("run",), "Batches taken, counted from the starting step.")
POLICY_VERSION = Metric("lachesis_policy_version", Kind.GAUGE, ("run",), "The current policy version.")
GROUPS_ACCEPTED = Metric(
    "lachesis_groups_accepted_total", Kind.COUNTER, ("run",), "Groups answered with success since the run was reset."
)
GROUPS = Metric(
    "lachesis_groups",
    Kind.GAUGE,
    ("run", "state"),
    "Accepted groups that were not dropped, each once: `queued`, `oversized` (can never fit a batch), "
    "`buffered`, `leased` or `delivered`. With the dropped ones they sum to the accepted ones.",
)
GROUPS_DROPPED = Metric(
    "lachesis_groups_dropped_total",
    Kind.COUNTER,
    ("run", "reason"),
    "Groups dropped; the reasons are those of the status.",
)
STARVATION = Metric(
    "lachesis_starvation",
    Kind.GAUGE,
    ("run",),
    "Whether nothing trainable has come for `alert_after_batches` batches' worth: 1 or 0.",
)
SCARCE = Metric(
    "lachesis_scarce_seconds",
    Kind.GAUGE,
    ("run", "environment"),
    "Seconds that batches have waited for an environment that sends too little; 0 before the alert.",
)
PAYLOAD = Metric(
    "lachesis_payload_bytes",
    Kind.GAUGE,
    ("run", "state"),
    "Bytes of payload held: `queued` (also oversized), `buffered`, `leased` or `kept`.",
)
ENVIRONMENTS = Metric(
    "lachesis_environments",
    Kind.GAUGE,
    ("run", "state"),
    "Registered environments: `alive`, `silent` for `LACHESIS_ENVIRONMENT_TTL_S`, or `disconnected`.",
)
MEMBERS = Metric(
    "lachesis_environment_members",
    Kind.GAUGE,
    ("run",),
    "Live worker processes of all environments.",
)
SERVED = Metric(
    "lachesis_served_sequences",
    Kind.GAUGE,
    ("run", "environment"),
    "Sequences handed out in batches, by the first 200 characters of the environment's name. The value falls when "
    'a batch is given back. `""` stands for groups without environment, and for all environments after the first '
    "hundred.",
)
LEASES = Metric(
    "lachesis_leases",
    Kind.GAUGE,
    ("run", "state"),
    "Batches handed out and not yet acknowledged: `sending`, `sent`, `held`, `returned` or `quarantined`.",
)
BATCHES_RELAXED = Metric(
    "lachesis_batches_relaxed_total", Kind.COUNTER, ("run",), "Batches planned without keeping every minimum."
)
BATCHES_KEPT = Metric("lachesis_batches_kept", Kind.GAUGE, ("run",), "Acknowledged batches that are kept for a rewind.")
IMBALANCE = Metric(
    "lachesis_rank_imbalance_ratio",
    Kind.SUMMARY,
    ("run", "division"),
    "Imbalance of batches divided between ranks: the largest load divided by the mean, minus 1. `chosen` is that "
    "of the division used, `contiguous` that in training order, `bound` the lower bound. `_sum / _count` is the mean.",
)
LAST_IMBALANCE = Metric(
    "lachesis_rank_last_imbalance_ratio",
    Kind.GAUGE,
    ("run", "division"),
    "The same for the last divided batch. `strided` is that of dealing sequences out in turns.",
)

# Of the replay buffers of runs that have one.
REPLAY_CHUNKS = Metric(
    "lachesis_replay_chunks",
    Kind.GAUGE,
    ("run", "place"),
    "Chunks of the replay buffer: `sampleable`, `reserved` (all their uses are reserved), `archived` (of "
    "former sessions, kept for inspection) or `retired_in_use` (retired, and still in samples).",
)
REPLAY_FRAGMENTS = Metric(
    "lachesis_replay_fragments",
    Kind.GAUGE,
    ("run", "state"),
    "Fragments in chunks (`in_chunks`), or not in a chunk yet (`waiting`).",
)
REPLAY_PAYLOAD = Metric("lachesis_replay_payload_bytes", Kind.GAUGE, ("run", "state"), "Bytes of payload of fragments.")
REPLAY_ACCEPTED = Metric(
    "lachesis_replay_fragments_accepted_total", Kind.COUNTER, ("run",), "Fragments accepted, also if dropped later."
)
REPLAY_DROPPED = Metric(
    "lachesis_replay_fragments_dropped_total",
    Kind.COUNTER,
    ("run", "reason"),
    "Fragments that were accepted and dropped without a chunk; the reasons are those of `GET …/replay`.",
)
REPLAY_REFUSED = Metric(
    "lachesis_replay_fragments_refused_total", Kind.COUNTER, ("run", "reason"), "Fragments that were refused."
)
REPLAY_GAPS = Metric("lachesis_replay_gaps_total", Kind.COUNTER, ("run",), "Abandoned gaps in workers' numbers.")
REPLAY_INSERTED = Metric("lachesis_replay_chunks_inserted_total", Kind.COUNTER, ("run",), "Chunks inserted.")
REPLAY_RETIRED = Metric(
    "lachesis_replay_chunks_retired_total",
    Kind.COUNTER,
    ("run", "reason"),
    "Chunks that were retired.",
)
REPLAY_USES = Metric(
    "lachesis_replay_retired_uses",
    Kind.SUMMARY,
    ("run",),
    "Acknowledged uses of retired chunks: `_count` chunks; `_sum / _count` is `avg_reuse` of `GET …/replay`.",
)
REPLAY_SAMPLED = Metric(
    "lachesis_replay_sampled_chunks", Kind.GAUGE, ("run",), "Chunks sampled; less when a sample is given back."
)
REPLAY_STALENESS = Metric(
    "lachesis_replay_sampled_staleness_versions",
    Kind.HISTOGRAM,
    ("run",),
    "Policy versions that chunks were behind when they were sampled, given back or not; `_sum / _count` "
    "is `avg_staleness`.",
)
REPLAY_SAMPLES_HELD = Metric("lachesis_replay_samples_held", Kind.GAUGE, ("run",), "Samples that trainers hold.")
REPLAY_LIMITER_ERROR = Metric(
    "lachesis_replay_limiter_error_chunks",
    Kind.GAUGE,
    ("run",),
    "inserts * samples_per_insert - samples, which the rate limiter keeps in its band. Missing without a limiter.",
)
REPLAY_BLOCKED = Metric(
    "lachesis_replay_blocked",
    Kind.GAUGE,
    ("run", "side"),
    "Whether the buffer refuses to insert (`insert`) or sample (`sample`) one chunk now: 1 or 0.",
)

# Of curricula. A run has at most 64. A restored curriculum may have lower values.
CURRICULUM_ITEMS = Metric(
    "lachesis_curriculum_items",
    Kind.GAUGE,
    ("run", "curriculum", "state"),
    "Items registered: `seen` (observed at least once) or `unseen`.",
)
CURRICULUM_IN_FLIGHT = Metric(
    "lachesis_curriculum_items_in_flight",
    Kind.GAUGE,
    ("run", "curriculum"),
    "Items handed out and not observed yet, as of the last sample; some may be free again.",
)
CURRICULUM_OBSERVATIONS = Metric(
    "lachesis_curriculum_observations",
    Kind.GAUGE,
    ("run", "curriculum"),
    "Observations so far; falls when an older state is restored.",
)
CURRICULUM_SAMPLES = Metric("lachesis_curriculum_samples", Kind.GAUGE, ("run", "curriculum"), "Samples so far.")
CURRICULUM_MEAN_REWARD = Metric(
    "lachesis_curriculum_mean_reward",
    Kind.GAUGE,
    ("run", "curriculum"),
    "Mean over items of their mean rewards, or priors, to 1e-5. High is easy. Missing if there are none.",
)

METRICS = tuple(value for value in list(vars().values()) if isinstance(value, Metric))
