"""Requests in MongoDB, as in the patent: replica sets, TTL indexes, findAndModify."""

from apps.requeststore.stores.mongo.node import MongoNode

__all__ = ["MongoNode"]
