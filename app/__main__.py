"""`python -m app`."""

# Guarded, and imported late: API processes run this module again when they start, and need none of it.
if __name__ == "__main__":
    import gc
    import sys

    from app.tuning import no_collection

    try:
        with no_collection():
            from app.cli.main import main
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("app."):
            raise
        sys.exit(
            f"lachesis: {sys.executable} has no module {error.name}: use .venv/bin/python, which `make run` sets up"
        )

    gc.freeze()  # Python looks through everything for garbage when it ends: a fifth of the time of a command
    main()
