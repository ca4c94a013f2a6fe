"""Test documents: changes need the current revision, repeats are recognised, sizes are limited."""

from __future__ import annotations

import pytest

from windlass.engine.contract import (
    MAX_DOCUMENT_BYTES,
    MAX_DOCUMENT_CHANGES,
    MAX_DOCUMENT_KEY,
    MAX_DOCUMENTS,
    MAX_KIND,
    Capability,
    Document,
    DocumentChange,
    Engine,
)
from windlass.errors import EngineError
from windlass.testing.contract.test_races import race
from windlass.testing.contract.world import World


def change(
    key: str = "key",
    expected: str = "",
    revision: str = "1",
    body: bytes | None = b"body",
    kind: str = "kind",
) -> DocumentChange:
    return DocumentChange(kind=kind, key=key, expected=expected, revision=revision, body=body)


def apply(world: World, *changes: DocumentChange) -> list[bool]:
    return world.engine.change_documents(changes)


def stored(world: World, key: str = "key", kind: str = "kind") -> Document | None:
    (found,) = world.engine.get_documents(kind, [key])
    return found


def keys_of(world: World, kind: str = "kind", after: str = "", limit: int = 100) -> list[str]:
    return [one.key for one in world.engine.list_documents(kind, after, limit)]


def test_a_document_is_stored_as_it_was_given(world: World) -> None:
    body = bytes(range(256))
    kind, key = "a!" * (MAX_KIND // 2), "~" * MAX_DOCUMENT_KEY
    assert apply(world, change(key, revision="r:1", body=body, kind=kind)) == [True]
    expected = Document(kind=kind, key=key, revision="r:1", body=body)
    assert stored(world, key, kind) == expected
    assert world.engine.check() == []


def test_documents_that_do_not_exist_are_not_found(world: World) -> None:
    apply(world, change("b"), change("a", kind="other"), change("bc"))
    found = world.engine.get_documents("kind", ["a", "b", "", "b", "b\0001", "b 1", "bc"])
    assert [one and one.key for one in found] == [None, "b", None, "b", None, None, "bc"]
    assert world.engine.get_documents("kind", []) == []
    assert world.engine.get_documents("kind\0b", ["1"]) == [None]
    assert world.engine.get_documents("none", ["b"]) == [None]


def test_a_changed_document_cannot_be_changed_by_the_old_revision(world: World) -> None:
    apply(world, change())
    assert apply(world, change(expected="1", revision="2", body=b"mine")) == [True]
    assert apply(world, change(expected="1", revision="3", body=b"other")) == [False]
    assert apply(world, change(expected="", revision="4", body=b"new")) == [False]
    assert apply(world, change(expected="1", revision="2", body=None)) == [False]
    assert stored(world) == Document(kind="kind", key="key", revision="2", body=b"mine")


def test_a_document_that_does_not_exist_cannot_be_changed(world: World) -> None:
    assert apply(world, change(expected="1", revision="2")) == [False]
    assert stored(world) is None


def test_a_document_is_removed_and_made_again(world: World) -> None:
    apply(world, change(), change("other"))
    assert apply(world, change(expected="1", revision="2", body=None)) == [True]
    assert (stored(world), keys_of(world)) == (None, ["other"])
    assert apply(world, change(expected="9", revision="3", body=None)) == [True]
    assert apply(world, change(revision="4", body=b"")) == [True]
    assert stored(world) == Document(kind="kind", key="key", revision="4", body=b"")


def test_a_late_change_of_a_removed_document_does_nothing(world: World) -> None:
    apply(world, change())
    late = change(expected="1", revision="2")
    apply(world, change(expected="1", revision="3", body=None))
    assert apply(world, late) == [False]
    apply(world, change(revision="4"))
    assert apply(world, late) == [False]


def test_changes_of_one_call_follow_each_other(world: World) -> None:
    done = apply(
        world,
        change(revision="1", body=b"one"),
        change(expected="1", revision="2", body=b"two"),
        change(expected="1", revision="3", body=b"late"),
        change(expected="2", revision="4", body=None),
        change(revision="5", body=b"again"),
        change(revision="5", body=b"again"),
        change("removed", revision="6"),
        change("removed", expected="6", revision="7", body=None),
        change("removed", expected="6", revision="8", body=None),
    )
    assert done == [True, True, False, True, True, True, True, True, True]
    assert world.engine.list_documents("kind") == [
        Document(kind="kind", key="key", revision="5", body=b"again")
    ]
    assert apply(world) == []


def test_documents_are_listed_by_key_in_pages(world: World) -> None:
    names = sorted(f"{first}{number}" for first in "~aA!" for number in range(60))
    for at in range(0, len(names), 100):
        apply(world, *(change(name, body=name.encode()) for name in names[::-1][at : at + 100]))
    apply(world, change("a", kind="kin"), change("b", kind="kind2"))
    listed: list[str] = []
    while page := keys_of(world, after=listed[-1] if listed else "", limit=7):
        listed += page
    assert listed == names == keys_of(world, limit=1_000)
    assert keys_of(world, after="a0", limit=2) == ["a1", "a10"]
    assert keys_of(world, after="a00", limit=1) == ["a1"]
    assert keys_of(world, after="a0\0x", limit=1) == ["a1"]
    assert keys_of(world, after="\U0001f600") == keys_of(world, limit=0) == []
    assert (keys_of(world, "kin"), keys_of(world, "kind2")) == (["a"], ["b"])
    assert keys_of(world, "kind\0a") == keys_of(world, "none") == []


@pytest.mark.parametrize(
    "wrong",
    [
        change(kind=""),
        change(kind="x" * (MAX_KIND + 1)),
        change(kind="a b"),
        change(key=""),
        change(key="x" * (MAX_DOCUMENT_KEY + 1)),
        change(key="a\0b"),
        change(key="\xe9"),
        change(key="a\n"),
        change(revision=""),
        change(revision="a\0b"),
        change(body=b"x" * (MAX_DOCUMENT_BYTES + 1)),
    ],
)
def test_a_document_that_cannot_be_stored_is_refused(world: World, wrong: DocumentChange) -> None:
    with pytest.raises(EngineError, match=r"(kind|key|revision) of a document|65536"):
        apply(world, change("fine"), wrong)
    assert stored(world, "fine") is None


def test_a_call_changes_a_bounded_number_of_documents(world: World) -> None:
    """Change as many bytes as one call can."""
    body = b"x" * MAX_DOCUMENT_BYTES
    changes = [change(f"{number:03}", body=body) for number in range(MAX_DOCUMENT_CHANGES)]
    with pytest.raises(EngineError, match=f"at most {MAX_DOCUMENT_CHANGES}"):
        apply(world, *changes, change("more"))
    assert keys_of(world) == []
    assert apply(world, *changes) == [True] * MAX_DOCUMENT_CHANGES
    names = [one.key for one in changes]
    assert world.engine.get_documents("kind", names) == world.engine.list_documents("kind")
    assert keys_of(world) == names


def test_the_number_of_documents_of_a_kind_is_limited(world: World) -> None:
    names = [f"{number:05}" for number in range(MAX_DOCUMENTS)]
    for at in range(0, MAX_DOCUMENTS, MAX_DOCUMENT_CHANGES):
        apply(world, *(change(name, body=b"") for name in names[at : at + MAX_DOCUMENT_CHANGES]))
    removed = change(names[1], expected="1", revision="2", body=None)
    with pytest.raises(EngineError, match=f"There are {MAX_DOCUMENTS} documents of kind kind"):
        apply(
            world, change(names[0], expected="1", revision="2"), removed, change("x"), change("y")
        )
    assert keys_of(world, after=names[-2]) == [names[-1]]
    assert keys_of(world, limit=3) == names[:3]
    revised = change(names[0], expected="1", revision="2")
    assert apply(world, change("x", kind="other"), revised) == [True, True]
    assert apply(world, removed, change("x")) == [True, True]
    without_x = change("x", expected="1", revision="2", body=None)
    without_y = change("y", expected="1", revision="2", body=None)
    done = apply(world, without_x, change("y"), without_y, change("z"))
    assert done == [True] * 4


def test_one_of_many_changes_of_a_document_wins(world: World) -> None:
    def compete(engine: Engine, index: int) -> bool:
        return engine.change_documents([change(revision=f"r{index}")])[0]

    won = race(world, 4, compete)
    assert sorted(won) == [False, False, False, True]
    found = stored(world)
    assert found is not None
    assert found.revision == f"r{won.index(True)}"


@pytest.mark.needs(Capability.DURABLE)
def test_documents_survive_a_restart(world: World) -> None:
    apply(world, change())
    before = world.engine.list_documents("kind")
    world.reopen()
    assert world.engine.list_documents("kind") == before
