"""Where passes run: the only rooms that know of threads, accelerators or clusters."""
