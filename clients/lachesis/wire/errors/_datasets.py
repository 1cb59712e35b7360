"""The errors of datasets on the service's disk."""

from lachesis.wire.errors._requests import InvalidInput, NotFound


class InvalidDataset(InvalidInput):
    """A dataset on the service's disk is broken, or has a layout that the service does not read."""

    code = "invalid_dataset"
    remedy = "Repair the file that the message names."
    _detail_says_all = True  # it names the file and the fault


class DatasetNotFound(NotFound):
    """The service has no dataset at this path, or reads no datasets."""

    code = "dataset_not_found"
    remedy = "Give a path below LACHESIS_DATASETS_DIR of the service."
