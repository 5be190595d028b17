"""The EM engine: pure functions on arrays."""
