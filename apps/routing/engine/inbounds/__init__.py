"""Inbounds: sources of items in Kafka, RabbitMQ, Redis lists, files and HTTP."""
