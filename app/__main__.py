"""`python -m app`."""

# Guarded, and imported late: API processes run this module again when they start, and need none of it.
if __name__ == "__main__":
    from app.cli import main

    main()
