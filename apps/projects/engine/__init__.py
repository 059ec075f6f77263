"""Plain-Python parts: tags, signatures, payloads, git, builds."""
