"""The fetcher daemon: takes stored requests, downloads, extracts records and stores them."""
