"""`crawlyard`: the command line of the product, over its REST API only."""
