"""Writers of datasets that are killed, cut off and frozen."""
