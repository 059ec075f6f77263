"""Targets of deliveries: files, tables, documents, queues, webhooks."""
