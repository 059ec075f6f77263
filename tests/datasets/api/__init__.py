"""Tests of the REST API of datasets."""
