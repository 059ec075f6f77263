"""The spider's side of the seed service: seeds found, seeds worked on, and what came of them."""
