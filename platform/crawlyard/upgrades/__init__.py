"""What an upgrade meets: migrations that add or take away, and what of older versions is left."""
