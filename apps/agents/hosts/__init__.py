"""Crawled hosts: rules, states, and the shares of the centers."""
