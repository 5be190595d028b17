"""Passes over rows on an accelerator, by PyTorch."""
