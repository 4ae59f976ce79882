"""Private alignment: everybody learns the common ids, nobody anything of another, and no liar gets by unnoticed."""

import hashlib
import re
import stat
import subprocess
import sys
from collections.abc import Callable, Iterable
from datetime import date
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coordinator.reports import SetupProgress
from fedora_vfl.bench.alignment import Pauses
from fedora_vfl.errors import DataError, PartyError, SettingsError
from fedora_vfl.settings.matching import Matching
from fedora_vfl.signing import SigningKey
from fedora_vfl.wire.masking import alignment_bytes, slots_in_third
from party import masking, private_alignment, share_table
from party.alignment import arranged
from party.alignment_keys import FreshKey, check_key, shares
from party.budget import DAY_SECONDS, Budget
from party.curve_library import library
from party.data.matching import matched
from party.data.reading import read
from party.data.settings import DataSettings
from party.kept_alignment import KEPT_FILE, rows_of
from party.masked_before import MaskedBefore
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


@pytest.mark.parametrize(("others", "found"), [([1, 2, 3, 4], 4), ([3, 4, 5, 6], 2), ([7, 8, 9], 0), ([], 0)])
def test_identical_overlapping_disjoint_and_empty_sets(tmp_path: Path, others: list[int], found: int) -> None:
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
            assert library().crypto_scalarmult_ristretto255(word[:31] + b"\0", guess) not in sent
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
        points, every = (b"".join(masking.times(secret, masking.hashed(some))) for some in (held, ids))
        salt, table = share_table.made(points, shares(held, sharing), room_for=300)
        words = share_table.digests(every, salt)
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
    points = b"".join(masking.random_points(count))
    values = np.frombuffer(np.random.default_rng(count).bytes(16 * count), dtype="<u8").reshape(-1, 2)
    salt, table = share_table.made(points, values, room_for=count)
    assert len(table) == 3 * slots_in_third(count)
    assert (share_table.answers_of(table, share_table.digests(points, salt)) == values).all()


def test_padding_hides_how_many_ids_a_party_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(private_alignment, "TELLING_SECONDS", 0.0)
    sizes = []
    for count in (110, 190):
        outcome = aligned(
            tmp_path / str(count), split(people(*range(count))), {"a": people(*range(count))}, padding=100
        )
        points = b"".join(Parcel.FromString(one).masked.points for one in outcome.recorded["active", "a"])
        tables = b"".join(Parcel.FromString(one).table.slots for one in outcome.recorded["a", "active"])
        sizes.append((len(points), len(tables)))
        # Progress, which the coordinator hears of.
        assert outcome.told and outcome.told <= {(200, 400), (400, 400)}
    assert sizes[0] == sizes[1]


def test_the_active_party_may_have_no_ids_at_all(tmp_path: Path) -> None:
    outcome = aligned(tmp_path, {}, {"a": people(1, 2), "b": []})
    assert str(outcome.errors["active"]) == "no sample id is held by all parties"


WITHOUT_FILES = """
import sys
def refuse(event, arguments):
    if event == "open" and isinstance(arguments[0], str) and set(arguments[1] or "r") & set("wax+"):
        raise PermissionError(13, "no file may be written here")
    if event in ("tempfile.mkstemp", "tempfile.mkdtemp"):
        raise PermissionError(13, "no file may be written here")
sys.dont_write_bytecode = True
sys.addaudithook(refuse)
from party.masking import fresh_secret, hashed, inverse, times
secret = fresh_secret()
assert times(inverse(secret), times(secret, hashed(["x"]))) == hashed(["x"])
"""


def test_the_curve_library_needs_no_folder_that_programs_may_be_in() -> None:
    """Hardened machines allow none: /tmp is mounted noexec, and all else is read-only."""
    done = subprocess.run([sys.executable, "-c", WITHOUT_FILES], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert library()._sodium._name.startswith("/proc/self/fd/")


def test_ids_of_all_types_and_files_are_one_where_they_are_the_same(tmp_path: Path) -> None:
    """Numbers, dates and text with leading zeros, from CSV and Parquet."""
    days = [date(1990, 2, day) for day in (1, 1, 2, 4)]  # of 817 the others say the third
    (tmp_path / "a.csv").write_text("id,born,x\n817,03.02.1990,1\n00818,02.02.1990,2\n 819 ,04.02.1990,3\n")
    numbers = pa.table({"id": pa.array([816, 817, 818, 819], pa.int64()), "born": pa.array(days, pa.date32())})
    pq.write_table(numbers.append_column("x", pa.array([1, 2, 3, 4])), tmp_path / "b.parquet")
    shifted = pa.table(
        {"id": ["0817", "0818", "819"], "born": [f"1990-02-0{day}" for day in (3, 2, 4)], "x": [1, 2, 3]}
    )
    pq.write_table(shifted, tmp_path / "c.parquet")
    matching = Matching(parts=2, zeros="strip", dates=[2])
    forms = {}
    for name, file, written in (("a", "a.csv", "%d.%m.%Y"), ("b", "b.parquet", None), ("c", "c.parquet", None)):
        settings = DataSettings(path=tmp_path / file, id=["id", "born"], date_format=written)  # type: ignore[arg-type]
        forms[name] = matched(read(settings, with_labels=False), matching, settings).ids
    expected = [matching.matched([number, f"1990-02-0{day}"]) for number, day in (("818", 2), ("819", 4))]
    cut = dict.fromkeys(forms["a"], "train") | {expected[0]: "test"}
    outcome = aligned(tmp_path / "run", cut, {"b": [*forms["b"], "another"], "c": forms["c"]})
    assert not outcome.errors
    assert set(rows_of(outcome.orders["b"])) == set(forms["a"]) & set(forms["b"]) & set(forms["c"]) == set(expected)


def test_the_event_loop_goes_on_while_ids_are_masked_sorted_and_kept(tmp_path: Path) -> None:
    """Health checks and keep-alive are answered from it; here three parties even share one."""
    pauses, ids = Pauses(), people(*range(4000))
    outcome = aligned(tmp_path, split(ids), {"a": ids, "b": ids}, beside=pauses.watched())
    assert not outcome.errors and 0 < pauses.longest_work < 0.5


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


# What is interrupted, and what a policy bounds.


def test_an_interrupted_alignment_goes_on_with_what_the_survivors_have_masked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(private_alignment, "CHUNK", 16)
    multiplied: list[int] = []

    def counted(secret: bytes, points: Iterable[bytes]) -> list[bytes]:
        made = masking.times(secret, points)
        multiplied.append(len(made))
        return made

    monkeypatch.setattr(private_alignment, "times", counted)
    ids = people(*range(160))
    members, before = ("active", "a", "b"), {name: MaskedBefore() for name in ("active", "a", "b")}
    whole = 7 * len(ids)  # the active party 1 + 2 times its ids, each of two passive ones 2 times
    answers = iter([True] * 4)

    def die(parcel: Parcel) -> list[Parcel] | None:
        return [parcel] if not parcel.HasField("masked") or next(answers, False) else None

    first = aligned(tmp_path, split(ids), {"a": ids, "b": ids}, changes={"b": die}, before=before, timeout=3)
    assert first.errors and not first.orders
    before["b"] = MaskedBefore()  # it was killed
    multiplied.clear()
    second = aligned(tmp_path, split(ids), {"a": ids, "b": ids}, before=before)
    assert not second.errors and len(rows_of(second.orders["b"])) == 160
    # All of the ids of `a`, and the four messages that were answered, are not masked again.
    assert sum(multiplied) <= whole - len(ids) - 4 * 16
    assert all(before[name].secret == b"" for name in members)  # done, and forgotten
    multiplied.clear()
    other = aligned(tmp_path / "other", split(ids), {"a": ids, "b": ids}, before=before, job="other")
    assert sum(multiplied) == whole and not points_of(other) & points_of(second)


def test_another_job_never_goes_on_with_the_secret_of_one_that_was_interrupted() -> None:
    before = MaskedBefore()
    before.begin("one")
    first = before.secret
    before.begin("one")
    assert before.secret == first
    before.begin("two")
    assert before.secret != first


@pytest.mark.parametrize("name", ["active", "a"])
def test_a_policy_that_has_had_enough_alignments_stops_before_anything_is_masked(tmp_path: Path, name: str) -> None:
    def refuse() -> None:
        raise SettingsError("policy.alignments_per_day: is 2, and ids were masked as often today")

    ids = people(*range(20))
    outcome = aligned(tmp_path, split(ids), {"a": ids, "b": ids}, agree={name: refuse}, timeout=3)
    assert isinstance(outcome.errors[name], SettingsError)
    sent = outcome.recorded["a", "active"] if name == "a" else outcome.recorded["active", "a"]
    assert not [one for one in map(Parcel.FromString, sent) if one.HasField("masked") or one.HasField("table")]


def test_alignments_are_counted_by_the_day_over_restarts(tmp_path: Path) -> None:
    now = 5.0 * DAY_SECONDS
    for count in (1, 2, 3):
        assert Budget(tmp_path, b"secret", clock=lambda: now).enter_alignment() == count
    now += DAY_SECONDS
    assert Budget(tmp_path, b"secret", clock=lambda: now).enter_alignment() == 1


@pytest.mark.parametrize("liar", ["active", "a"])
def test_a_message_that_is_sent_again_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, liar: str) -> None:
    monkeypatch.setattr(private_alignment, "CHUNK", 25)
    sent: list[bytes] = []

    def again(parcel: Parcel) -> list[Parcel]:
        if parcel.HasField("masked"):
            sent.append(parcel.masked.points)
            parcel.masked.points = sent[0]
        return [parcel]

    refused(tmp_path, liar, again, "sent a masked id twice")


@pytest.mark.parametrize(
    ("liar", "content"),
    [("a", "call"), ("a", "table"), ("a", "slots"), ("active", "plan"), ("active", "masked"), ("active", "common")],
)
def test_whoever_hangs_up_early_is_named(tmp_path: Path, liar: str, content: str) -> None:
    def hang_up(parcel: Parcel) -> list[Parcel] | None:
        found = parcel.WhichOneof("content")
        return (
            None if (found == "table" and content == "slots" and parcel.table.slots) or found == content else [parcel]
        )

    refused(tmp_path, liar, hang_up, "is gone|ended the stream|hung up|closed")
