"""E-steps: from rows and parameters to sufficient statistics, in NumPy, compiled, and on devices."""
