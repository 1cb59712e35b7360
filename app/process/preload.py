"""Import the application where API processes are forked, so that they start fast and share its memory."""

import gc

from app.tuning import no_collection

with no_collection():
    import app.main  # noqa: F401 - for those that are forked

gc.freeze()  # a collection in a forked process would copy what it looks at into that process
