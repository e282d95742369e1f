"""The shell of every page: nothing is fetched, and plain values cannot become markup."""

from suffice.report import html

HOSTILE = "<script>alert('x')</script>"


def test_plain_values_are_escaped_and_empty_parts_left_out():
    made = html.pairs([("Run", {HOSTILE: HOSTILE, "two_words": 1234}), ("Empty", {})], "h3")
    assert "<script" not in made and made.count("&lt;script&gt;") == 2
    assert "<th>two words</th><td>1,234</td>" in made and "Empty" not in made


def test_a_page_may_fetch_nothing():
    page = html.page("title", "<p>body</p>")
    assert "default-src 'none'" in page and "<title>suffice: title</title>" in page and "<p>body</p>" in page
    assert "http" not in page.replace("http-equiv", "")


def test_tiles_and_tables_hold_what_they_are_given():
    assert html.tiles([]) == ""
    assert "<b>3</b><span>runs</span>" in html.tiles([("3", "runs")])
    made = html.table(("a", "b"), [("x", "1")], numeric=(1,))
    assert '<th>a</th><th class="n">b</th>' in made and '<td>x</td><td class="n">1</td>' in made
