"""Where items come from: Kafka, RabbitMQ, Redis lists, files, HTTP (seed S2.17 to S2.23)."""
