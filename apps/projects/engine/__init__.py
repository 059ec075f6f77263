"""The plain-Python parts: tags, signatures, payloads, git, builds."""
