"""Pages of datasets: items of runs and datasets, comparison of runs."""
