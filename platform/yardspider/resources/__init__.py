"""The spider's side of resource pools: accounts, tokens and proxies, one owner at a time."""
