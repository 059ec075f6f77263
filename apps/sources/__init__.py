"""Record APIs and what is harvested of them."""
