"""The program ``skmix``, also run by ``python -m skmix``."""


def main() -> None:
    """Run the command line; report an interrupt during its imports like a later one."""
    try:
        from skmix.cli import app
    except KeyboardInterrupt:
        import sys

        sys.stderr.write("Error: interrupted.\n")
        raise SystemExit(130) from None
    app()


if __name__ == "__main__":
    main()
