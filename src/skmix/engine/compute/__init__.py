"""Threads, array libraries, accelerators and clusters: the hardware that passes run on."""

from functools import lru_cache


@lru_cache
def can_compile() -> bool:
    """Return whether there is compiled code: not where Numba is missing, does not work or is switched off."""
    try:
        import numba

        from . import simd  # noqa: F401
    except ImportError:
        return False
    return not numba.config.DISABLE_JIT  # type: ignore[attr-defined]
