"""Declare every metric once. `make reference` writes docs/reference/metrics.md from this module.

Labels are bounded: runs by `app.store.runs.store.MOST_RUNS`, environments by `app.services.metrics.runs`, routes and
states by the code. A metric that may fall, for example after a rewind, is a gauge, even if it resembles a counter.
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


Sample = tuple[Metric, tuple[str, ...], float]
"""The value of a counter or gauge, with the values of its labels; of an API process, without ``process``."""

# Of the API process that answers.
HTTP_REQUESTS = Metric(
    "lachesis_http_requests_total",
    Kind.COUNTER,
    ("process", "method", "route", "status"),
    "Requests. `route` is the template, such as `/v1/runs/{run}/groups`, or `none`; paths of Atropos below "
    "`/runs/{run}/atropos` count as the paths at the root. `status` is `none` for a request without an answer, because "
    "the client had gone or the service was ending.",
)
HTTP_DURATION = Metric(
    "lachesis_http_request_duration_seconds",
    Kind.HISTOGRAM,
    ("process", "route"),
    "Seconds from the headers of a request to the end of its answer, including long polls.",
)
CONNECTIONS = Metric("lachesis_connections", Kind.GAUGE, ("process",), "Open connections of clients.")
CONNECTIONS_REFUSED = Metric(
    "lachesis_connections_refused_total",
    Kind.COUNTER,
    ("process", "limit"),
    "Connections that got `too_many_connections`: those over `LACHESIS_MAX_CONNECTIONS` (`total`), "
    "`LACHESIS_MAX_CONNECTIONS_PER_ADDRESS` (`address`), `LACHESIS_MAX_CONNECTIONS_PER_TOKEN` (`token`) or "
    "`max_connections` of a run (`run`).",
)
BODY_MEMORY = Metric(
    "lachesis_body_memory_bytes", Kind.GAUGE, ("process",), "Memory that request bodies over 256 KiB hold now."
)
BODIES_WAITING = Metric("lachesis_bodies_waiting", Kind.GAUGE, ("process",), "Request bodies that wait for memory now.")
BODIES_EVICTED = Metric(
    "lachesis_bodies_evicted_total",
    Kind.COUNTER,
    ("process",),
    "Request bodies that got `request_timeout` because they came slowly while others waited for memory.",
)
BATCHES_HANDED_OUT = Metric(
    "lachesis_batches_handed_out_total",
    Kind.COUNTER,
    ("process",),
    "Batches and shards of batches handed out to trainers, including repetitions.",
)
LONG_POLLS_WAITING = Metric(
    "lachesis_long_polls_waiting", Kind.GAUGE, ("process",), "Requests that wait for a batch now."
)
REPLAY_REQUESTS_BLOCKED = Metric(
    "lachesis_replay_requests_blocked_total",
    Kind.COUNTER,
    ("process", "side"),
    "Requests to a replay buffer that could not be answered at once: `insert` or `sample`. The rate limiter blocked "
    "them, or there were too few chunks.",
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
    "Whether this scrape could read the whole run: 1, or 0 if metrics of the run are missing.",
)
STEP = Metric("lachesis_step", Kind.GAUGE, ("run",), "Batches taken, counted from the starting step.")
POLICY_VERSION = Metric("lachesis_policy_version", Kind.GAUGE, ("run",), "The current policy version.")
GROUPS_ACCEPTED = Metric(
    "lachesis_groups_accepted_total",
    Kind.COUNTER,
    ("run",),
    "Groups that the service acknowledged since the run began or was reset.",
)
GROUPS = Metric(
    "lachesis_groups",
    Kind.GAUGE,
    ("run", "state"),
    "Accepted groups that were not dropped, each once: `queued`, `oversized` (too large for a batch), `buffered`, "
    "`leased` or `delivered`. Together with the dropped groups they sum to the accepted groups.",
)
GROUPS_DROPPED = Metric(
    "lachesis_groups_dropped_total",
    Kind.COUNTER,
    ("run", "reason"),
    "Dropped groups. The reasons are those of the status.",
)
TOKENS_GENERATED = Metric(
    "lachesis_tokens_generated_total",
    Kind.COUNTER,
    ("run",),
    "Tokens of the groups that the service acknowledged since the run began or was reset.",
)
TOKENS = Metric(
    "lachesis_tokens",
    Kind.GAUGE,
    ("run", "state"),
    "Generated tokens, each once, by what happened to them: `trained`, `queued`, `leased`, `stale`, `filtered`, "
    "`dropped` or `surplus`. They sum to the generated tokens. The states are those of `ledger` in the status.",
)
STARVATION = Metric(
    "lachesis_starvation",
    Kind.GAUGE,
    ("run",),
    "Whether the run could not train on the last `alert_after_batches` batches of sequences: 1 or 0.",
)
SCARCE = Metric(
    "lachesis_scarce_seconds",
    Kind.GAUGE,
    ("run", "environment"),
    "Seconds that batches have waited for an environment that sends too little. 0 before the alert.",
)
PAYLOAD = Metric(
    "lachesis_payload_bytes",
    Kind.GAUGE,
    ("run", "state"),
    "Bytes of payload: `queued` (including oversized), `buffered`, `leased` or `kept`.",
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
    "lachesis_batches_relaxed_total", Kind.COUNTER, ("run",), "Batches planned with less than some minimum share."
)
BATCHES_KEPT = Metric("lachesis_batches_kept", Kind.GAUGE, ("run",), "Acknowledged batches that are kept for a rewind.")
IMBALANCE = Metric(
    "lachesis_rank_imbalance_ratio",
    Kind.SUMMARY,
    ("run", "division"),
    "Imbalance of batches divided between ranks: the largest load divided by the mean, minus 1. `chosen` is that of "
    "the division used, `contiguous` that in training order, `bound` the lower bound. `_sum / _count` is the mean.",
)
LAST_IMBALANCE = Metric(
    "lachesis_rank_last_imbalance_ratio",
    Kind.GAUGE,
    ("run", "division"),
    "Imbalance of the last divided batch. `strided` is the imbalance if ranks took sequences in turns.",
)

# Of the replay buffers of runs that have one.
REPLAY_CHUNKS = Metric(
    "lachesis_replay_chunks",
    Kind.GAUGE,
    ("run", "place"),
    "Chunks of the replay buffer: `sampleable`, `reserved`, `archived` or `retired_in_use`. All uses of a reserved "
    "chunk are reserved. An archived chunk is of a former session. A chunk that is retired in use is still in samples.",
)
REPLAY_FRAGMENTS = Metric(
    "lachesis_replay_fragments",
    Kind.GAUGE,
    ("run", "state"),
    "Fragments in chunks (`in_chunks`), or not in a chunk yet (`waiting`).",
)
REPLAY_PAYLOAD = Metric("lachesis_replay_payload_bytes", Kind.GAUGE, ("run", "state"), "Bytes of payload of fragments.")
REPLAY_ACCEPTED = Metric(
    "lachesis_replay_fragments_accepted_total",
    Kind.COUNTER,
    ("run",),
    "Accepted fragments, including those that were dropped later.",
)
REPLAY_DROPPED = Metric(
    "lachesis_replay_fragments_dropped_total",
    Kind.COUNTER,
    ("run", "reason"),
    "Accepted fragments that were dropped before they were in a chunk. The reasons are those of `GET …/replay`.",
)
REPLAY_REFUSED = Metric(
    "lachesis_replay_fragments_refused_total", Kind.COUNTER, ("run", "reason"), "Fragments that were refused."
)
REPLAY_GAPS = Metric("lachesis_replay_gaps_total", Kind.COUNTER, ("run",), "Skipped gaps in the numbers of workers.")
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
    "lachesis_replay_sampled_chunks",
    Kind.GAUGE,
    ("run",),
    "Sampled chunks. The value falls when a sample is given back.",
)
REPLAY_STALENESS = Metric(
    "lachesis_replay_sampled_staleness_versions",
    Kind.HISTOGRAM,
    ("run",),
    "Staleness of chunks when trainers sampled them, policy versions. Samples that were given back count, too. "
    "`_sum / _count` is `avg_staleness`.",
)
REPLAY_SAMPLES_HELD = Metric(
    "lachesis_replay_samples_held",
    Kind.GAUGE,
    ("run",),
    "Samples that trainers hold, and batches with replayed groups.",
)
REPLAY_LIMITER_ERROR = Metric(
    "lachesis_replay_limiter_error_chunks",
    Kind.GAUGE,
    ("run",),
    "The error of the rate limiter: `inserts * samples_per_insert - samples`. Missing without a limiter.",
)
REPLAY_BLOCKED = Metric(
    "lachesis_replay_blocked",
    Kind.GAUGE,
    ("run", "side"),
    "Whether an insert (`insert`) or a sample (`sample`) of one chunk must wait now: 1 or 0.",
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
    "Items handed out and not observed yet, as of the last sample. Some may be free again.",
)
CURRICULUM_OBSERVATIONS = Metric(
    "lachesis_curriculum_observations",
    Kind.GAUGE,
    ("run", "curriculum"),
    "Observations so far. The value falls when an older state is restored.",
)
CURRICULUM_SAMPLES = Metric("lachesis_curriculum_samples", Kind.GAUGE, ("run", "curriculum"), "Samples so far.")
CURRICULUM_MEAN_REWARD = Metric(
    "lachesis_curriculum_mean_reward",
    Kind.GAUGE,
    ("run", "curriculum"),
    "Mean over items of their mean rewards, or priors, to 1e-5. A high value means easy items. Missing without items.",
)

METRICS = tuple(value for value in list(vars().values()) if isinstance(value, Metric))
