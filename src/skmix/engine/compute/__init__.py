"""Threads, arrays, accelerators and clusters: the hardware that passes run on."""


def how_to_install(extra: str) -> str:
    """Return the command that installs an extra, for errors. Released packages will have a shorter one."""
    return f'pip install ".[{extra}]" in a checkout of skmix'
