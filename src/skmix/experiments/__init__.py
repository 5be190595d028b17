"""A comparison with other classifiers."""
