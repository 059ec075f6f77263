"""REST API of projects, builds, images and webhook deliveries."""
