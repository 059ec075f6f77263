"""Resource pools as a spider uses them: accounts, tokens and proxies, each leased to one run."""
