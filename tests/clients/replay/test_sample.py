"""Samples whose fragments other programs have sent."""

import numpy as np
import pytest

from lachesis.replay.sample import Records
from lachesis.wire import blob
from lachesis.wire.samples import Record, SampleInfo


def test_a_fragment_whose_names_do_not_nest_is_named() -> None:
    """The service takes any names."""
    records = [Record.model_construct(fragment=name) for name in ("good", "odd")]
    blobs = [blob.write({name: np.arange(2) for name in names}) for names in (["obs"], ["obs", "obs/x"])]
    sample = Records(SampleInfo.model_construct(sample="s", records=records), blobs)
    for read in (sample.fragments, sample.stacked):
        with pytest.raises(ValueError, match=r"fragment odd: obs.*: the name of an array, and of others .*`blobs`"):
            read()
    assert [sorted(dtypes) for dtypes in sample.dtypes()] == [["obs"], ["obs", "obs/x"]]
