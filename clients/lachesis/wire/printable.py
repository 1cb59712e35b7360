"""Make text safe to show in a terminal."""


def printable(text: str) -> str:
    """Escape control characters, line breaks and characters that reorder text. Others chose it."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)
