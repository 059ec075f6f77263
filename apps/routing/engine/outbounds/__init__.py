"""Outbounds: destinations of items in Redis, RabbitMQ, Kafka and HTTP services."""
