"""A double of Elasticsearch for tests, for no real one can be had everywhere.

It speaks HTTP and knows the requests that the adapter makes, as the reference of version 8 and 9
describes them. It is strict: a request with a parameter, a body or a field that it does not know is
answered with 501, so that no test passes by accident; documents must fit the mapping of the
template, and are found by searches only after a refresh or a second. It proves the adapter's
logic, not that a real server agrees; ``make test-elasticsearch`` asks one.
"""

from tests.joblogs.elastic_double.server import ElasticDouble

__all__ = ["ElasticDouble"]
