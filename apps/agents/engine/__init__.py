"""Plain-Python parts: chart geometry and owners of allocations."""
