"""Requests in MongoDB, as the patent has it: replica sets, TTL indexes, findAndModify."""

from apps.requeststore.stores.mongo.node import MongoNode

__all__ = ["MongoNode"]
