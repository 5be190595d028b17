"""The program ``skmix``, also run by ``python -m skmix``."""

import gc


def main() -> None:
    """Run the command line; report an interrupt during its imports like a later one."""
    # Imports make many objects, and none is garbage: looking for cycles takes 0.1 to 0.2 s of each command.
    gc.set_threshold(50_000)
    try:
        from skmix.cli import app
    except KeyboardInterrupt:
        import sys

        sys.stderr.write("Error: interrupted.\n")
        raise SystemExit(130) from None
    app()


if __name__ == "__main__":
    main()
