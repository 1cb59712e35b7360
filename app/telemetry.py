"""Every metric, declared once. `docs/operate/index.md` has the same as a table, and a test that holds it to this one.

Labels are bounded: runs by `app.store.runs.store.MOST_RUNS`, environments by `app.services.metrics`, routes and states
by the code. A metric that may go back, as by a rewind, is a gauge, however much it looks like a counter: to Prometheus
a counter that falls has started anew.
"""

from dataclasses import dataclass
from enum import StrEnum

DURATION_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""Upper bounds of the durations of requests, seconds: from a group that is stored to a long poll."""


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
        name: Its name; ends with the unit, and that of a counter with ``_total``.
        kind: How it is read.
        labels: The names of its labels, in the order of their values.
        meaning: One sentence.
    """

    name: str
    kind: Kind
    labels: tuple[str, ...]
    meaning: str


# Of the API process that answers.
HTTP_REQUESTS = Metric(
    "lachesis_http_requests_total", Kind.COUNTER, ("process", "method", "route", "status"), "Requests answered."
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
    "Batches, and shards of batches, put into trainers' hands, repetitions included.",
)
LONG_POLLS_WAITING = Metric(
    "lachesis_long_polls_waiting", Kind.GAUGE, ("process",), "Requests that wait for a batch now."
)
REPLAY_REQUESTS_BLOCKED = Metric(
    "lachesis_replay_requests_blocked_total",
    Kind.COUNTER,
    ("process", "side"),
    "Requests to a replay buffer that could not be answered at once, whether they waited or not.",
)
REPLAY_REQUESTS_WAITING = Metric(
    "lachesis_replay_requests_waiting", Kind.GAUGE, ("process", "side"), "Those of them that wait now."
)
STORE_UP = Metric(
    "lachesis_store_up",
    Kind.GAUGE,
    ("process",),
    "Whether Redis told what this scrape asked: 1, or 0 and no metric of any run.",
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
POLICY_VERSION = Metric("lachesis_policy_version", Kind.GAUGE, ("run",), "The policy version in force.")
GROUPS_ACCEPTED = Metric(
    "lachesis_groups_accepted_total", Kind.COUNTER, ("run",), "Groups answered with success since the run was reset."
)
GROUPS = Metric("lachesis_groups", Kind.GAUGE, ("run", "state"), "Accepted groups that were not dropped, each once.")
GROUPS_DROPPED = Metric("lachesis_groups_dropped_total", Kind.COUNTER, ("run", "reason"), "Groups dropped.")
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
PAYLOAD = Metric("lachesis_payload_bytes", Kind.GAUGE, ("run", "state"), "Bytes of payload held.")
ENVIRONMENTS = Metric("lachesis_environments", Kind.GAUGE, ("run", "state"), "Registered environments.")
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
    "Sequences handed out in batches; less when a batch is given back.",
)
LEASES = Metric("lachesis_leases", Kind.GAUGE, ("run", "state"), "Batches handed out and not yet acknowledged.")
BATCHES_RELAXED = Metric(
    "lachesis_batches_relaxed_total", Kind.COUNTER, ("run",), "Batches planned without keeping every minimum."
)
BATCHES_KEPT = Metric("lachesis_batches_kept", Kind.GAUGE, ("run",), "Acknowledged batches that are kept for a rewind.")
IMBALANCE = Metric(
    "lachesis_rank_imbalance_ratio",
    Kind.SUMMARY,
    ("run", "division"),
    "Imbalance of batches divided between ranks: the largest load over the mean, minus 1.",
)
LAST_IMBALANCE = Metric(
    "lachesis_rank_last_imbalance_ratio",
    Kind.GAUGE,
    ("run", "division"),
    "The same of the last batch that was divided.",
)

# Of the replay buffers of runs that have one.
REPLAY_CHUNKS = Metric("lachesis_replay_chunks", Kind.GAUGE, ("run", "place"), "Chunks of the replay buffer.")
REPLAY_FRAGMENTS = Metric(
    "lachesis_replay_fragments",
    Kind.GAUGE,
    ("run", "state"),
    "Fragments in chunks that are held, or in none yet.",
)
REPLAY_PAYLOAD = Metric("lachesis_replay_payload_bytes", Kind.GAUGE, ("run", "state"), "Bytes of their payload.")
REPLAY_ACCEPTED = Metric(
    "lachesis_replay_fragments_accepted_total", Kind.COUNTER, ("run",), "Fragments taken in, whatever became of them."
)
REPLAY_DROPPED = Metric(
    "lachesis_replay_fragments_dropped_total",
    Kind.COUNTER,
    ("run", "reason"),
    "Fragments that were taken in and are in no chunk.",
)
REPLAY_REFUSED = Metric(
    "lachesis_replay_fragments_refused_total", Kind.COUNTER, ("run", "reason"), "Fragments that were not taken in."
)
REPLAY_GAPS = Metric("lachesis_replay_gaps_total", Kind.COUNTER, ("run",), "Gaps in workers' numbers given up.")
REPLAY_INSERTED = Metric("lachesis_replay_chunks_inserted_total", Kind.COUNTER, ("run",), "Chunks inserted.")
REPLAY_RETIRED = Metric(
    "lachesis_replay_chunks_retired_total",
    Kind.COUNTER,
    ("run", "reason"),
    "Chunks that were retired.",
)
REPLAY_USES = Metric(
    "lachesis_replay_retired_uses", Kind.SUMMARY, ("run",), "Acknowledged uses of the chunks that were retired."
)
REPLAY_SAMPLED = Metric(
    "lachesis_replay_sampled_chunks", Kind.GAUGE, ("run",), "Chunks sampled; less when a sample is given back."
)
REPLAY_STALENESS = Metric(
    "lachesis_replay_sampled_staleness_versions",
    Kind.HISTOGRAM,
    ("run",),
    "Policy versions that chunks were behind when they were sampled, given back or not.",
)
REPLAY_SAMPLES_HELD = Metric("lachesis_replay_samples_held", Kind.GAUGE, ("run",), "Samples in trainers' hands.")
REPLAY_LIMITER_ERROR = Metric(
    "lachesis_replay_limiter_error_chunks", Kind.GAUGE, ("run",), "How far inserts are ahead of samples."
)
REPLAY_BLOCKED = Metric(
    "lachesis_replay_blocked", Kind.GAUGE, ("run", "side"), "Whether one chunk may not be inserted, or sampled, now."
)

# Of curricula, of which a run has 64 at most; restored, they go back.
CURRICULUM_ITEMS = Metric("lachesis_curriculum_items", Kind.GAUGE, ("run", "curriculum", "state"), "Items registered.")
CURRICULUM_IN_FLIGHT = Metric(
    "lachesis_curriculum_items_in_flight", Kind.GAUGE, ("run", "curriculum"), "Items handed out and not observed yet."
)
CURRICULUM_OBSERVATIONS = Metric(
    "lachesis_curriculum_observations", Kind.GAUGE, ("run", "curriculum"), "Observations so far."
)
CURRICULUM_SAMPLES = Metric("lachesis_curriculum_samples", Kind.GAUGE, ("run", "curriculum"), "Samples so far.")
CURRICULUM_MEAN_REWARD = Metric(
    "lachesis_curriculum_mean_reward",
    Kind.GAUGE,
    ("run", "curriculum"),
    "Mean over items of the moving average of their rewards: high is easy.",
)

METRICS = tuple(value for value in list(vars().values()) if isinstance(value, Metric))
