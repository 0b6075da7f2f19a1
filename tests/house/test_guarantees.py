"""What the README guarantees is tested, and docs/guarantees.md says where."""

from __future__ import annotations

from tests.house.guarantees import PAGE, guarantees, marked, page


def test_each_guarantee_has_a_test() -> None:
    """And each marker names a guarantee that the README gives."""
    names = guarantees()
    assert len(names) > 20
    assert len(names) == len(set(names))
    assert {guarantee for guarantee, _ in marked()} == set(names)


def test_the_page_is_as_it_would_be_generated() -> None:
    """`python -m tests.house.guarantees` writes it anew."""
    assert PAGE.read_text("utf-8") == page()
