"""The fetcher: takes stored requests, downloads, extracts, stores records, and says what came."""
