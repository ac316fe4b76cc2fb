"""Text from data, made safe to look at."""

import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from rm_memorization.visible import label, shorten, visible


def test_bidirectional_controls_and_nul_are_written_out():
    assert visible("a\u202eb\u2066c\x00d\u200be\ufefff") == "a⟨U+202E⟩b⟨U+2066⟩c⟨U+0000⟩d⟨U+200B⟩e⟨U+FEFF⟩f"


def test_what_people_write_with_stays():
    text = "tab\tline\n👩\u200d🔬 🏳️ नमस्ते می\u200cخواهم שלום $x^2$ <b> é e\u0301"
    assert visible(text) == text


@given(st.text())
def test_no_control_is_left_and_nothing_else_is_touched(text):
    shown = visible(text)
    assert not [c for c in shown if unicodedata.category(c) in {"Cc", "Cs", "Zl", "Zp"} and c not in "\n\t"]
    harmless = [c for c in text if c.isprintable()]
    assert [c for c in harmless if c in shown] == harmless


@given(st.text(max_size=30), st.integers(1, 40))
def test_what_is_shown_and_what_is_left_out_add_up(text, limit):
    shown, left_out = shorten(text, limit)
    assert text.startswith(shown)
    assert len(shown) + left_out == len(text)
    assert len(shown) <= limit


def test_a_label_is_one_short_line():
    assert label("a\nb\t") == "a⟨U+000A⟩b⟨U+0009⟩"
    assert label("x" * 100) == "x" * 40 + "… (+60)"
    assert label("x" * 40) == "x" * 40
    assert len(label("\u202e" * 1000)) < 50
