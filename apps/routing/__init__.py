"""Rule-based task router: moves items from inbounds to outbounds (taskHUB, seed 2)."""
