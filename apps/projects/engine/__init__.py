"""Plain-Python parts of this app: tags, signatures, payloads, git, builds."""
