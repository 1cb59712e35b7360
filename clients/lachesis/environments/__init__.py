"""An environment's side of a run."""
