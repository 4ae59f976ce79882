"""Private alignment: everybody learns the common ids, nobody anything of another, and no liar gets by unnoticed."""

import hashlib
import re
import stat
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coordinator.reports import SetupProgress
from fedora_vfl.errors import DataError, PartyError
from fedora_vfl.signing import SigningKey
from fedora_vfl.wire.masking import alignment_bytes, slots_in_third
from party import masking, private_alignment, share_table
from party.alignment import arranged
from party.alignment_keys import FreshKey, check_key, shares
from party.kept_alignment import KEPT_FILE, rows_of
from party.private_alignment import AGAIN, DIFFERENCE, WHOLE, rounded_up
from protos.fedora.v1.exchange_pb2 import Parcel
from protos.fedora.v1.meter_pb2 import Kind
from protos.fedora.v1.phase_pb2 import Progress
from tests.aligning import Change, Outcome, aligned

SETS = ("train", "test", "validation", "probe")
IDS = st.text(min_size=1, max_size=12)


def split(ids: list[str]) -> dict[str, str]:
    """Cut ids into sets, train and test first so that both are there."""
    return {one: SETS[number % 2 if number < 2 else number % 4] for number, one in enumerate(sorted(ids))}


def names(count: int) -> list[str]:
    return [f"passive-{number + 1}" for number in range(count)]


def people(*numbers: int) -> list[str]:
    return [f"person {number:05d}" for number in numbers]


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_two_to_eight_parties_find_what_an_independent_intersection_finds(data: st.DataObject) -> None:
    everybody = data.draw(st.lists(IDS, min_size=2, max_size=40, unique=True))
    common = data.draw(st.sets(st.sampled_from(everybody), min_size=2))
    count = data.draw(st.integers(1, 7))
    held = [sorted(common | data.draw(st.sets(st.sampled_from(everybody)))) for _ in range(count + 1)]
    expected = {one for one in everybody if all(one in ids for ids in held)}
    padding = data.draw(st.sampled_from([None, 7, 64]))
    cut = split(sorted(common)) | {one: "train" for one in held[0] if one not in common}
    with TemporaryDirectory() as folder:
        outcome = aligned(Path(folder), cut, dict(zip(names(count), held[1:], strict=True)), padding=padding)
    assert not outcome.errors
    for order in outcome.orders.values():
        assert order == arranged(expected, cut)
    assert outcome.aligned["active"] is not None
    assert outcome.aligned["active"].masked == rounded_up(len(held[0]), padding)


@pytest.mark.parametrize(("others", "found"), [([1, 2, 3, 4], 4), ([3, 4, 5, 6], 2), ([7, 8, 9], 0)])
def test_identical_overlapping_and_disjoint_sets(tmp_path: Path, others: list[int], found: int) -> None:
    cut = {one: ("train", "test")[number % 2] for number, one in enumerate(people(1, 2, 3, 4))}
    outcome = aligned(tmp_path, cut, {"a": people(*others), "b": people(*range(10), *others)})  # some twice
    if found:
        assert len(rows_of(outcome.orders["a"])) == found and outcome.orders["a"] == outcome.orders["active"]
    else:
        assert isinstance(outcome.errors["active"], DataError)
        assert str(outcome.errors["active"]) == "no sample id is held by all parties"


def test_ids_of_any_script_and_many_chunks_are_aligned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(private_alignment, "CHUNK", 16)
    monkeypatch.setattr(private_alignment, "CHUNK_BYTES", 64)
    ids = [f"{script}{number}" for number in range(40) for script in ("Ärztin ", "患者", "مريض", "😀", "a\0b", " ")]
    cut = dict(zip(ids, ["train", "test"] * 120, strict=True))
    outcome = aligned(tmp_path, cut, {"a": ids[::-1], "b": ids[100:]})
    assert not outcome.errors
    assert outcome.orders["b"] == arranged(set(ids[100:]), cut) == outcome.orders["active"]


def test_bytes_are_those_that_the_cost_model_predicts(tmp_path: Path) -> None:
    cut = split(people(*range(3000)))
    passive = {"a": people(*range(1000, 5000)), "b": people(*range(2500))}
    outcome = aligned(tmp_path, cut, passive)
    counted = [one for one in outcome.meters["active"].close() if one.kind == Kind.ALIGNMENT]
    measured = sum(count.tensor_bytes for one in counted for count in one.counts)
    whole = sum(count.protobuf_bytes for one in counted for count in one.counts)
    assert measured == alignment_bytes(3000, [4000, 2500], told=1500, masking=True)
    assert measured < whole < 1.02 * measured
    there = [one for name in passive for one in outcome.meters[name].close()]
    assert sum(count.protobuf_bytes for one in there for count in one.counts) == whole  # both ends count alike


def test_recorded_traffic_holds_no_id_nor_anything_that_tests_one(tmp_path: Path) -> None:
    cut = split(people(*range(200)))
    passive = {"a": people(*range(100, 300)), "b": people(*range(50, 250))}
    outcome = aligned(tmp_path, cut, passive)
    traffic = outcome.traffic
    for one in people(*range(300)):
        point = masking.hashed([one])[0]
        hashes = [hashlib.new(name, one.encode()).digest() for name in ("md5", "sha1", "sha256", "sha512", "blake2b")]
        for told in (one.encode(), point, *hashes, *(found.hex().encode() for found in hashes)):
            assert told[:12] not in traffic
    # Whoever has all of the traffic and guesses an id needs a secret to test it: no point of the traffic is the product
    # of a guess and anything else of the traffic that could be a secret.
    sent = points_of(outcome)
    words = [traffic[at : at + 32] for at in range(0, min(len(traffic), 4000), 7)]
    guess = masking.hashed(people(150))[0]
    for word in words:
        try:
            assert masking.library().crypto_scalarmult_ristretto255(word[:31] + b"\0", guess) not in sent
        except (RuntimeError, ValueError):
            continue


def points_of(outcome: Outcome) -> set[bytes]:
    messages = [Parcel.FromString(one) for sent in outcome.recorded.values() for one in sent]
    return {point for one in messages for point in masking.cut(one.masked.points)}


def test_the_same_alignment_twice_shares_no_masked_value(tmp_path: Path) -> None:
    cut, passive = split(people(*range(100))), {"a": people(*range(100)), "b": people(*range(100))}
    first, second = (aligned(tmp_path / name, cut, passive) for name in ("one", "two"))
    assert points_of(first) and not points_of(first) & points_of(second)
    words = [{one[at : at + 16] for at in range(len(one) - 16)} for one in (first.traffic, second.traffic)]
    repeated = {one for one in words[0] & words[1] if len(set(one)) > 8}
    assert not repeated


def test_no_answer_of_a_table_tells_a_strict_subset_from_nobody() -> None:
    """An id that all passive parties but one hold looks to the active party as one that none of them holds."""
    ids, count = people(*range(400)), 3
    secrets = [masking.fresh_secret() for _ in range(count)]
    keys = {(one, other): bytes([one, other]) * 16 for one in range(count) for other in range(one)}
    total = np.zeros((400, 2), dtype=np.uint64)
    answers = []
    for party, secret in enumerate(secrets):
        held = [one for row, one in enumerate(ids) if row < 200 or (row < 300 and party != 0)]
        sharing = [key for pair, key in keys.items() if party in pair]
        salt, table = share_table.made(masking.times(secret, masking.hashed(held)), shares(held, sharing), room_for=300)
        words = share_table.digests(masking.times(secret, masking.hashed(ids)), salt)
        answers.append(share_table.answers_of(table, words))
        total ^= answers[-1]
    assert not total[:200].any()  # held by all
    assert total[200:].all(axis=1).all()  # by two of three, and by nobody
    for rows in (slice(200, 300), slice(300, 400)):  # in neither can two tables' answers be matched, or bits be counted
        assert not (answers[1][rows] == answers[2][rows]).any()
        bits = np.unpackbits(np.concatenate([one[rows] for one in answers]).view(np.uint8))
        assert abs(bits.mean() - 0.5) < 0.02


@pytest.mark.parametrize("count", [0, 1, 2, 3, 10, 100, 5000])
def test_a_table_answers_its_ids_and_is_as_large_as_said(count: int) -> None:
    points = masking.random_points(count)
    values = np.frombuffer(np.random.default_rng(count).bytes(16 * count), dtype="<u8").reshape(-1, 2)
    salt, table = share_table.made(points, values, room_for=count)
    assert len(table) == 3 * slots_in_third(count)
    assert (share_table.answers_of(table, share_table.digests(points, salt)) == values).all()


def test_padding_hides_how_many_ids_a_party_has(tmp_path: Path) -> None:
    sizes = []
    for count in (110, 190):
        outcome = aligned(
            tmp_path / str(count), split(people(*range(count))), {"a": people(*range(count))}, padding=100
        )
        points = b"".join(Parcel.FromString(one).masked.points for one in outcome.recorded["active", "a"])
        tables = b"".join(Parcel.FromString(one).table.slots for one in outcome.recorded["a", "active"])
        sizes.append((len(points), len(tables)))
    assert sizes[0] == sizes[1]


def test_the_curve_library_leaves_no_file_behind() -> None:
    assert not Path(masking.library()._sodium._name).exists()


def test_progress_before_the_first_phase_must_be_progress() -> None:
    progress = SetupProgress()
    for steps in (1, 5):
        progress.check("hospital", Progress(steps=steps, of_steps=9))
        progress.check("bank", Progress(steps=steps + 1, of_steps=9))
    for told in (Progress(steps=5, of_steps=9), Progress(steps=10, of_steps=9), Progress(phase=1, steps=7, of_steps=9)):
        with pytest.raises(PartyError, match="hospital told of progress before the first phase that is none"):
            progress.check("hospital", told)


# Hostile members. Each lies in one way, and is named.


def of(content: str, change: Callable[[Parcel], list[Parcel] | None]) -> Change:
    """Change the first parcel of one content."""
    done = False

    def changed(parcel: Parcel) -> list[Parcel] | None:
        nonlocal done
        if done or parcel.WhichOneof("content") != content:
            return [parcel]
        if content == "table" and not parcel.table.slots:
            return [parcel]
        done = True
        return change(parcel)

    return changed


def with_points(make: Callable[[list[bytes]], list[bytes]]) -> Callable[[Parcel], list[Parcel]]:
    def change(parcel: Parcel) -> list[Parcel]:
        parcel.masked.points = b"".join(make(masking.cut(parcel.masked.points)))
        return [parcel]

    return change


def changed(content: str, **fields: object) -> Change:
    def change(parcel: Parcel) -> list[Parcel]:
        for name, value in fields.items():
            setattr(getattr(parcel, content), name, value)
        return [parcel]

    return of(content, change)


IDENTITY = bytes(32)
NOT_CANONICAL = b"\xff" * 32
HOSTILE: dict[str, tuple[Callable[[], Change], str]] = {
    "identity": (lambda: of("masked", with_points(lambda sent: [IDENTITY, *sent[1:]])), "no point of ristretto255"),
    "not canonical": (lambda: of("masked", with_points(lambda sent: [NOT_CANONICAL, *sent[1:]])), "no point of"),
    "twice": (lambda: of("masked", with_points(lambda sent: [sent[1], *sent[1:]])), "a masked id twice"),
    "one less": (lambda: of("masked", with_points(lambda sent: sent[1:])), "bytes of masked ids where 3200 were due"),
    "one more": (lambda: of("masked", with_points(lambda sent: [*sent, sent[0]])), "where 3200 were due"),
    "half a point": (lambda: changed("masked", points=b"half"), "sent 4 bytes of masked ids where 3200 were due"),
    "out of turn": (lambda: of("masked", lambda parcel: [Parcel(call={})]), "sent its call where its masked was due"),
    "hang up": (lambda: of("masked", lambda parcel: None), "is gone"),
}
TABLES: dict[str, tuple[Callable[[], Change], str]] = {
    "short table": (lambda: changed("table", slots=b"short"), "bytes of a table of shares; a table for"),
    "no salt": (lambda: changed("table", salt=b""), "a salt of 16 bytes"),
    "oversize set": (lambda: announced(10**9), "announced 1000000000 ids for an alignment; allowed: up to 50000000"),
    "other count": (lambda: announced(7), "bytes of a table of shares; a table for"),
    "no key": (lambda: changed("call", key=b""), "has 0 bytes; it should have 32"),
    "identity as key": (lambda: changed("call", key=IDENTITY), "sent a key that is no point"),
}
PLANS: dict[str, tuple[Callable[[], Change], str]] = {
    "kept by nobody": (lambda: changed("plan", way=AGAIN), "goes on from one which this party does not keep"),
    "oversize set": (lambda: changed("plan", ids=10**9), "announced 1000000000 ids"),
    "no secret": (lambda: changed("plan", secret=b""), "without its secret"),
    "own key back": (lambda: of("plan", key_twice), "a key for the alignment that another party has, too"),
    "other parties": (lambda: of("plan", no_others), "among other parties than the job has"),
    "unknown rows": (lambda: changed("common", tags=b"x" * 1600), "some that this party does not hold"),
    "too many rows": (lambda: changed("common", train=10**6), "common rows, and this party has offered"),
    "fewer rows": (lambda: changed("common", tags=b""), "told 100 common rows, and has sent another number of them"),
}


def announced(count: int) -> Change:
    def change(parcel: Parcel) -> list[Parcel]:
        if parcel.WhichOneof("content") == "table" and parcel.table.ids:
            parcel.table.ids = count
        return [parcel]

    return change


def key_twice(parcel: Parcel) -> list[Parcel]:
    parcel.plan.others[0].key = parcel.plan.key
    return [parcel]


def no_others(parcel: Parcel) -> list[Parcel]:
    del parcel.plan.others[:]
    return [parcel]


def refused(folder: Path, liar: str, change: Change, said: str) -> None:
    ids = people(*range(100))
    outcome = aligned(folder, split(ids), {"a": ids, "b": ids}, changes={liar: change}, timeout=3)
    victims = ["active"] if liar != "active" else ["a", "b"]
    told = [error for name, error in outcome.errors.items() if name in victims and isinstance(error, PartyError)]
    assert [error for error in told if error.culprit == liar], outcome.errors
    sentence = str(next(error for error in told if error.culprit == liar))
    assert re.search(said, sentence), sentence
    assert "person" not in sentence


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("liar", ["active", "a"])
def test_wrong_points_are_refused_with_a_sentence_that_names_the_sender(tmp_path: Path, liar: str, name: str) -> None:
    change, said = HOSTILE[name]
    refused(tmp_path, liar, change(), said)


@pytest.mark.parametrize("name", TABLES)
def test_wrong_tables_and_keys_are_refused(tmp_path: Path, name: str) -> None:
    change, said = TABLES[name]
    refused(tmp_path, "a", change(), said)


@pytest.mark.parametrize("name", PLANS)
def test_wrong_plans_and_orders_are_refused(tmp_path: Path, name: str) -> None:
    change, said = PLANS[name]
    refused(tmp_path, "active", change(), said)


def test_a_masked_set_of_an_earlier_alignment_gets_nobody_anywhere(tmp_path: Path) -> None:
    """A replay is masked anew, as the passive party's secret is; the active party's own mask no longer comes off."""
    ids = people(*range(100))
    first = aligned(tmp_path / "one", split(ids), {"a": ids})
    earlier = [Parcel.FromString(one) for one in first.recorded["active", "a"]]
    points = next(one.masked.points for one in earlier if one.HasField("masked"))
    again = aligned(tmp_path / "two", split(ids), {"a": ids}, changes={"active": changed("masked", points=points)})
    assert isinstance(again.errors["active"], DataError)
    assert not points_of(first) & (points_of(again) - set(masking.cut(points)))


def test_a_key_that_its_party_has_not_signed_is_refused(tmp_path: Path) -> None:
    signing, other = (SigningKey.load_or_make(tmp_path / name) for name in ("a", "b"))
    key = FreshKey.made("a", "job", signing)
    known = {"a": signing.public}
    check_key("a", key.public, key.signature, job="job", known=known, sender="active")
    for job, public, signature in (
        ("later", key.public, key.signature),
        ("job", masking.public_point(masking.fresh_secret()), key.signature),
        ("job", key.public, FreshKey.made("a", "job", other).signature),
        ("job", key.public, ""),
    ):
        with pytest.raises(PartyError, match="active sent a key for the alignment that a has not signed"):
            check_key("a", public, signature, job=job, known=known, sender="active")


# What is kept.


def way_of(outcome: Outcome) -> int:
    return next(one.plan.way for one in map(Parcel.FromString, outcome.recorded["active", "a"]) if one.HasField("plan"))


def test_an_alignment_is_kept_and_only_differences_are_masked(tmp_path: Path) -> None:
    ids = people(*range(100))
    cut, passive = split(ids), {"a": people(*range(20, 120)), "b": people(*range(100))}
    first = aligned(tmp_path, cut, passive)
    assert way_of(first) == WHOLE and len(rows_of(first.orders["a"])) == 80
    again = aligned(tmp_path, cut, passive, job="second")
    assert way_of(again) == AGAIN and again.orders == first.orders and not points_of(again)

    erased = {"a": people(*range(20, 120)), "b": people(*range(99))}
    third = aligned(tmp_path, cut, erased, job="third")
    assert way_of(third) == AGAIN and third.orders["a"] == arranged(set(people(*range(20, 99))), cut)

    added = {"a": people(*range(10, 120)), "b": people(*range(99))}
    fourth = aligned(tmp_path, cut, added, job="fourth")
    assert way_of(fourth) == DIFFERENCE and len(points_of(fourth)) <= 2 * 2 * 21
    for order in fourth.orders.values():
        assert order == arranged(set(people(*range(10, 99))), cut)
    moved = {one: "validation" if one == people(50)[0] else part for one, part in cut.items()}
    fifth = aligned(tmp_path, moved, added, job="fifth")
    assert way_of(fifth) == AGAIN and fifth.orders["b"] == arranged(set(people(*range(10, 99))), moved)


def test_a_party_that_lost_its_alignment_has_all_align_anew(tmp_path: Path) -> None:
    cut, passive = split(people(*range(30))), {"a": people(*range(30)), "b": people(*range(25))}
    aligned(tmp_path, cut, passive)
    path = tmp_path / "a" / KEPT_FILE
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.write_text("{}")
    again = aligned(tmp_path, cut, passive)
    assert way_of(again) == WHOLE and len(rows_of(again.orders["b"])) == 25
