"""Tests of the services of the request store."""
