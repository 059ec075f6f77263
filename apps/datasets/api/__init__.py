"""REST API of datasets."""
