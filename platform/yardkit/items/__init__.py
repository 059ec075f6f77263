"""Items as Parquet files, of the platform and of local runs: batches, columns, segments."""
