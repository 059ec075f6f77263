"""Rule-based task router: moves items from inbounds to outbounds, with the rules of taskHUB."""
