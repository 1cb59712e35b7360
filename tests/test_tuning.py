"""The memory settings of a process have an effect."""

import gc
import subprocess
import sys
from contextlib import suppress

from app.tuning import no_collection

SCRIPT = """
import resource, sys
from app.tuning import tune_process
if sys.argv[1] == "tuned":
    tune_process()
for _ in range(50):  # blocks below the size that is mapped; freed from the top of the heap
    blocks = [bytearray(100_000) for _ in range(20)]
    del blocks
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(200):
    blocks = [bytearray(100_000) for _ in range(20)]
    del blocks
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def _page_faults(kind: str) -> int:
    done = subprocess.run([sys.executable, "-c", SCRIPT, kind], check=True, capture_output=True, text=True)
    return int(done.stdout)


def test_memory_that_is_reused_costs_no_page_faults() -> None:
    assert _page_faults("tuned") * 20 < _page_faults("untuned")


RETURNED = """
from pathlib import Path
from app.tuning import return_memory, tune_process
tune_process()
def resident_bytes():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096
before = resident_bytes()
blocks = [bytearray(100_000) for _ in range(1000)]
del blocks
kept = resident_bytes() - before
return_memory()
print(kept, resident_bytes() - before)
"""


def test_freed_memory_is_returned_when_asked_for() -> None:
    done = subprocess.run([sys.executable, "-c", RETURNED], check=True, capture_output=True, text=True)
    kept, left = map(int, done.stdout.split())
    assert kept > 90_000_000
    assert left < 10_000_000


def test_garbage_is_collected_again_after_a_start() -> None:
    with suppress(ImportError), no_collection():
        assert not gc.isenabled()
        raise ImportError
    assert gc.isenabled()
