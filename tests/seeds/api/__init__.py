"""Seeds over REST."""
