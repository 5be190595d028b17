"""Threads, array libraries, accelerators and clusters: the hardware that passes run on."""
