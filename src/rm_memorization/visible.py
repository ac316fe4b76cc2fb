"""Text from data, made safe to look at: nothing in it is hidden, reorders its neighbours or goes on without end."""

import re

# Controls but tab and line feed, soft hyphens, direction marks, zero-width and tag characters, and what XML forbids.
# Zero-width joiners stay: emoji and several scripts are written with them.
HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f"
    "\ud800-\udfff\ufeff\ufff0-\ufffb\ufffe\uffff\U000e0000-\U000e0fff]"
)
BREAKS = re.compile("[\t\n]")
LABEL = 40


def visible(text: str) -> str:
    """Write the characters that one cannot see as their code points; tabs and line feeds stay.

    Examples
    --------
    >>> visible("to" + chr(0x202E) + "day" + chr(0))
    'to⟨U+202E⟩day⟨U+0000⟩'
    """
    return HIDDEN.sub(_code_point, text)


def _code_point(found: re.Match[str]) -> str:
    return f"⟨U+{ord(found[0]):04X}⟩"


def shorten(text: str, limit: int) -> tuple[str, int]:
    """Give the beginning of a text and the number of characters left out behind it.

    Examples
    --------
    >>> shorten("memorization", 6)
    ('memori', 6)
    """
    return text[:limit], max(0, len(text) - limit)


def label(text: str) -> str:
    """Give a name as one short line for a figure; what is left out is counted.

    Examples
    --------
    >>> label("a" * 45)
    'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa… (+5)'
    """
    shown, left_out = shorten(BREAKS.sub(_code_point, visible(text)), LABEL)
    return shown + (f"… (+{left_out})" if left_out else "")
