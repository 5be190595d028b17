"""The program ``skmix``, also by ``python -m skmix``."""


def main() -> None:
    """Run the command line; an interrupt while its libraries load ends it as a later one does."""
    try:
        from skmix.cli import app
    except KeyboardInterrupt:
        import sys

        sys.stderr.write("Error: interrupted.\n")
        raise SystemExit(130) from None
    app()


if __name__ == "__main__":
    main()
