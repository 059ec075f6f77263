"""Alert engine: rules, evaluation and messages. No Django models, no I/O."""
