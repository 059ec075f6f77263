"""Starting, watching and stopping executions on a host. Plain Python."""
