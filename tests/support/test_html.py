"""Elements of HTML: text stays text."""

from __future__ import annotations

from tilewright.support.html import markup, page, table, tag


def test_text_and_attributes_are_escaped() -> None:
    made = markup(tag("a", "<b>&", "</a>", class_='x"y', data_name="<"))
    assert made == '<a class="x&quot;y" data-name="<">&lt;b&gt;&amp;&lt;/a&gt;</a>'


def test_what_steers_a_reader_is_shown_as_its_escape() -> None:
    assert markup(tag("p", "a\x00\x1b\ud800‮b")) == "<p>a\\x00\\x1b\\ud800\\u202eb</p>"


def test_text_may_follow_elements() -> None:
    assert markup(tag("p", "a", tag("b", "c"), "d", None, ["e", tag("i")])) == (
        "<p>a<b>c</b>de<i></i></p>"
    )


def test_a_table_aligns_numbers() -> None:
    made = markup(table(("name", "n"), [("x", "1")], numeric=("n",)))
    assert '<th class="number">n</th>' in made and '<td class="number">1</td>' in made


def test_a_page_needs_no_other_file() -> None:
    made = page("<title>", "p { color: red }", tag("p", "x"))
    assert made.startswith("<!DOCTYPE html>") and "&lt;title&gt;" in made
    assert "src=" not in made and "href=" not in made
