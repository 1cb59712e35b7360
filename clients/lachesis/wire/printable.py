"""Text for people: safe to show in a terminal, and with nouns in the right number."""


def printable(text: str) -> str:
    """Escape control characters, line breaks and characters that reorder text. Others chose it."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)


def counted(count: int, noun: str, plural: str | None = None) -> str:
    """Return a count with its noun. Without ``plural``, an ``s`` makes the plural."""
    return f"{count} {noun if count == 1 else plural or f'{noun}s'}"
