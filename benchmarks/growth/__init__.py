"""What grows: the cost of each call by what is there beside it, as CPU time, of one version or of several."""
