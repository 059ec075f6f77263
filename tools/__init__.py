"""What `make` runs besides the product itself: generated documents, compiled translations."""
