"""Reads of datasets for pages, REST and the command line."""
