"""Whether there is compiled code."""

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


def is_loaded() -> bool:
    """Return whether this process uses compiled code already: what is on disk is then loaded quickly."""
    return can_compile.cache_info().currsize > 0 and can_compile()
