"""What an unlearning certificate promises: who said it, that nothing was changed since, and that it adds up."""

import json
import os
import secrets
import stat
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedora_vfl.certificates import claims
from fedora_vfl.certificates.attestation import commit_to
from fedora_vfl.certificates.form import joint_of, read
from fedora_vfl.certificates.joint import Asked, JointStatement, Parties, digest, fits_clocks
from fedora_vfl.certificates.making import accept, certificate
from fedora_vfl.certificates.statement import commit, now, open_request, request_secret, sign_statement, statement
from fedora_vfl.certificates.trust import trusted_keys
from fedora_vfl.certificates.verification import Check, Evidence, examine, unvouched
from fedora_vfl.errors import CertificateError, DataError, FedoraError, PartyError, SettingsError, UncheckedError
from fedora_vfl.settings.federation import Federation, load_federation
from fedora_vfl.signing import SigningKey, canonical, parse_canonical, verify
from fedora_vfl.wire.protocol import COORDINATOR
from party.settings import load_party
from protos.fedora.v1.control_pb2 import Statement
from tests.conftest import write_yaml

deterministic = hypothesis.settings(derandomize=True, deadline=None)

JOB = "0123456789abcdef0123456789abcdef"
PARTIES = ("active", "passive-1", "passive-2")
IDS = ["p0003", "p0001", "p0002"]
SECRET = bytes(range(32))
PHASES = {"unlearn": 10, "remain": 10}

Content = dict[str, Any]


@dataclass(frozen=True)
class Run:
    """A folder as a run leaves it, with all keys at hand."""

    folder: Path
    keys: dict[str, SigningKey]
    joint: JointStatement
    statements: dict[str, Statement]
    text: str

    @property
    def public_keys(self) -> dict[str, str]:
        """Everybody's public key."""
        return {name: key.public for name, key in self.keys.items()}

    @property
    def content(self) -> Content:
        """The certificate, to be changed at will."""
        read: Content = parse_canonical(self.text.encode())
        return read

    def sealed(self, content: Content) -> bytes:
        """Sign changed content as the coordinator would."""
        rest = {name: value for name, value in content.items() if name != COORDINATOR}
        key = self.keys[COORDINATOR]
        return canonical(rest | {COORDINATOR: {"public_key": key.public, "signature": key.sign(canonical(rest))}})

    def resigned(self, content: Content, party: str, *, key: SigningKey | None = None) -> Content:
        """Sign a changed statement as its party would, or somebody else in its name."""
        signed = content["statements"][party]
        signer = key or self.keys[party]
        signed |= {"public_key": signer.public, "signature": signer.sign(canonical(signed["statement"]))}
        return content


LINES = (("passive-1->active", "embedding"), ("active->passive-1", "gradient"), ("passive-1->active", "dual"))
EACH = 120  # bytes of one line


def traffic() -> dict[str, Any]:
    """A ledger's summary of one phase: embeddings up, gradients down."""
    links = [
        {
            "link": "active--passive-1",
            "direction": direction,
            "phase": "unlearn",
            "kind": kind,
            "messages": 2,
            "tensor": 0 if kind == "dual" else 100,
            "protobuf": EACH,
        }
        for direction, kind in LINES
    ]
    totals = {"predicted": 200, "tensor": 200, "protobuf": 2 * EACH}
    return {**totals, "phases": {"unlearn": totals}, "links": links, "beyond": "what a certificate does not take over"}


def counted(party: str) -> dict[str, tuple[int, int]]:
    """What one party counted of the same."""
    ways = {kind: direction.split("->") for direction, kind in LINES}
    return {kind: (EACH * (one == party), EACH * (other == party)) for kind, (one, other) in ways.items()}


METRICS: dict[str, dict[str, float | None]] = {
    "original": {"test_accuracy": 0.875, "backdoor_asr": None},
    "unlearned": {"test_accuracy": 0.85, "backdoor_asr": None},
    "retrain": {"test_accuracy": 0.86, "backdoor_asr": None},
}

SCALAR = {"form": "scalar", "omega": 0.75}


def parameterwise(party: str) -> dict[str, Any]:
    """A party's own dual variable, in short."""
    place = PARTIES.index(party)
    return {
        "form": "parameterwise",
        "norm": 3.0 + place,
        "largest": 0.5,
        "positive_share": 0.25 * place,
        "parameters": 10,
    }


def one_statement(
    folder: Path, party: str, joint: JointStatement, dual: dict[str, Any] | None, loss: float | None = 1.3
) -> Content:
    """What one party states, from its own files."""
    models = folder / "models" / party
    models.mkdir(parents=True, exist_ok=True)
    for name in ("original", "unlearned"):
        (models / f"{name}.safetensors").write_bytes(f"{party} {name}".encode())
    measured = {"loss": loss, "weight": 2.0, "classes": 2, "gamma": 1.25} if loss is not None else None
    active: dict[str, Any] = {"uncertainty": measured, "metrics": METRICS}
    return statement(
        job=JOB,
        party=party,
        role="active" if party == "active" else "passive",
        joint=joint,
        began=joint.time,
        commitment=commit(folder / "keys" / party, job=JOB, party=party, ids=IDS, secret=SECRET),
        dropped=3,
        remaining=97,
        phases=PHASES,
        before=models / "original.safetensors",
        after=models / "unlearned.safetensors",
        change_squared=4.0 + PARTIES.index(party),
        dual=dual,
        residual_squared=0.25,
        residual_rows=97,
        traffic=counted(party),
        **(active if party == "active" else {}),
    )


ASKED = Asked(kind="classes", classes=["≥50K"], percent=50.0, salt="5a" * 32)


def joint_statement(
    form: str | None, goal: str | None = "uncertain", parties: tuple[str, ...] = PARTIES
) -> JointStatement:
    """What all parties sign alike."""
    settings = {"method": "fedora", "rounds": 10, "delta": 0.1, "steps": "auto", "without": []}
    content = {
        "job": JOB,
        "time": now(),
        "software": "fedora 1",
        "parties": {"active": "active", "passive": [name for name in parties if name != "active"]},
        "request": {"rows": 3, "commitment": commit_to(IDS, SECRET, job=JOB), "asked": digest(ASKED)},
        "method": {
            "name": "fedora",
            "settings": settings,
            "goal": goal,
            "dual": form,
            "rounds": 10,
            "stopped": "the constraint has held for 3 rounds",
        },
        "phases": PHASES,
        "models": {"before": "original", "after": "unlearned"},
    }
    return JointStatement.model_validate(content)


def make_run(
    folder: Path,
    *,
    form: str | None = "scalar",
    loss: float | None = 1.3,
    goal: str = "uncertain",
    parties: tuple[str, ...] = PARTIES,
) -> Run:
    """Make all keys, every party's statement, the certificate and the federation file, as a run would."""
    keys = {name: SigningKey.load_or_make(folder / "keys" / name) for name in (COORDINATOR, *parties)}
    duals = {name: SCALAR if form == "scalar" else form and parameterwise(name) for name in parties}
    joint = joint_statement(form, goal, parties)
    signed = {
        name: sign_statement(one_statement(folder, name, joint, duals[name] or None, loss), keys[name])
        for name in parties
    }
    public = {name: key.public for name, key in keys.items()}
    text = certificate(
        joint=joint,
        asked=ASKED,
        statements=signed,
        key=keys[COORDINATOR],
        keys=public,
        traffic=traffic(),
        seconds=12.5,
    )
    (folder / "certificate.json").write_text(text, encoding="utf-8")
    federation = {
        "coordinator": {"address": "127.0.0.1:7000"},
        "active": {"address": "127.0.0.1:7001"},
        "passive": [name for name in parties if name != "active"],
        "keys": public,
    }
    write_yaml(folder / "federation.yaml", federation)
    return Run(folder, keys, joint, signed, text)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A finished run; tests that change files make their own."""
    return make_run(tmp_path_factory.mktemp("run"))


def federation_of(run: Run) -> Federation:
    """The run's federation file, which has everybody's key."""
    return load_federation(run.folder / "federation.yaml")


def failures(data: bytes, evidence: Evidence | None = None) -> list[str]:
    """Return what does not hold."""
    _, checks = examine(data, evidence or Evidence())
    return [check.said for check in checks if check.holds is False]


def verify_command(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run the command line to its end."""
    command = [sys.executable, "-m", "fedora_vfl.cli", "verify", *map(str, arguments)]
    environment = {**os.environ, "COLUMNS": "1000"}
    return subprocess.run(command, env=environment, text=True, capture_output=True, timeout=60, check=False)


# Canonical JSON

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
).filter(lambda value: "\\ud" not in json.dumps(value))


@deterministic
@given(values)
def test_canonical_json_reads_back_as_the_same_value_and_the_same_bytes(value: object) -> None:
    data = canonical(value)
    assert data.endswith(b"\n")
    assert parse_canonical(data) == value
    assert canonical(parse_canonical(data)) == data


@deterministic
@given(st.dictionaries(st.text(alphabet="abc", max_size=3), st.integers(), min_size=2), st.randoms())
def test_the_order_in_which_names_were_given_does_not_show(value: dict[str, int], random: Any) -> None:
    names = list(value)
    random.shuffle(names)
    assert canonical({name: value[name] for name in names}) == canonical(value)


@pytest.mark.parametrize(
    "text",
    [
        b'{"a": 1}',  # no newline, other white space
        b'{\n  "a": 1,\n  "a": 1\n}\n',
        b'{\n  "b": 1,\n  "a": 1\n}\n',
        b'{\n  "a": 1.50\n}\n',
        b'{\n  "a": 1E3\n}\n',
        b'{\n  "a": 1e400\n}\n',
        b'{\n  "a": NaN\n}\n',
        b'{\n  "a": "\\u00e9"\n}\n',
        b'{\n  "a": "\\ud800"\n}\n',
        b'{\n  "a": "\xff"\n}\n',
        b"\xef\xbb\xbf1\n",
        b"[" * 100_000,
        b"1" * 10_000 + b"\n",
        b"",
    ],
)
def test_json_that_is_written_another_way_is_refused(text: bytes) -> None:
    with pytest.raises(CertificateError, match=r"is not (canonical )?JSON"):
        parse_canonical(text)


@pytest.mark.parametrize("value", [float("nan"), [float("inf")], {"a": {1: 2}}, {"a": b"bytes"}, {"a": "\ud800"}])
def test_what_json_cannot_say_is_never_signed(value: object) -> None:
    with pytest.raises(CertificateError, match="cannot be written as canonical JSON"):
        canonical(value)


# Keys


def test_a_key_is_made_once_for_its_owner_alone_and_signs(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "keys"
    key = SigningKey.load_or_make(folder)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE((folder / "signing.key").stat().st_mode) == 0o600
    assert [path.name for path in folder.iterdir()] == ["signing.key"]
    assert SigningKey.load_or_make(folder).public == key.public
    assert SigningKey.load_or_make(tmp_path / "other").public != key.public
    assert verify(key.public, b"said", key.sign(b"said"))
    assert not verify(key.public, b"sand", key.sign(b"said"))


def test_of_two_ways_to_write_a_key_or_a_signature_one_is_enough(tmp_path: Path) -> None:
    key = SigningKey.load_or_make(tmp_path)
    signature = key.sign(b"said")
    assert not verify(key.public.upper(), b"said", signature)
    assert not verify(key.public, b"said", signature.upper())
    assert not verify(key.public, b"said", signature + "\n")
    assert not verify("", b"said", "")


def test_a_key_that_others_may_read_is_refused(tmp_path: Path) -> None:
    SigningKey.load_or_make(tmp_path)
    path = tmp_path / "signing.key"
    for mode in (0o640, 0o604, 0o666):
        path.chmod(mode)
        with pytest.raises(SettingsError) as caught:
            SigningKey.load_or_make(tmp_path)
        assert str(caught.value) == (f"{path}: others may read this private key (mode {mode:o}); run: chmod 600 {path}")


def test_a_file_that_is_no_key_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "signing.key"
    path.touch(mode=0o600)
    with pytest.raises(SettingsError, match="is not an unencrypted private key in PEM form"):
        SigningKey.load_or_make(tmp_path)


def test_a_key_is_what_other_software_reads(tmp_path: Path) -> None:
    key = SigningKey.load_or_make(tmp_path)
    lines = (tmp_path / "signing.key").read_text().splitlines()
    assert lines[0] == "-----BEGIN PRIVATE KEY-----" and lines[-1] == "-----END PRIVATE KEY-----"
    assert len(bytes.fromhex(key.public)) == 32


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"nobody": "ab" * 32}, "keys: 'nobody' is not a member of this federation: coordinator, p, active"),
        ({"p": "AB" * 32}, f"keys.p: '{'AB' * 32}' is not a public key: write an Ed25519 key's 64 hexadecimal digits"),
        ({"p": "ab"}, "keys.p: 'ab' is not a public key"),
        ({"p": "ab" * 32, "coordinator": "ab" * 32}, "keys: coordinator and p have the same key"),
    ],
)
def test_the_federation_file_gives_members_keys_and_nobody_else_s(
    keys: dict[str, str], said: str, tmp_path: Path
) -> None:
    content = {"coordinator": {"address": "h:1"}, "active": {"address": "h:2"}, "passive": ["p"]}
    with pytest.raises(SettingsError) as caught:
        load_federation(write_yaml(tmp_path / "federation.yaml", {**content, "keys": keys}))
    assert said in str(caught.value)
    good = {"p": "ab" * 32, "coordinator": "cd" * 32}
    assert load_federation(write_yaml(tmp_path / "federation.yaml", {**content, "keys": good})).keys == good


def test_a_party_s_keys_folder_starts_at_its_file(tmp_path: Path) -> None:
    federation = {"coordinator": {"address": "h:1"}, "active": {"address": "h:2"}, "passive": ["p"]}
    write_yaml(tmp_path / "federation.yaml", federation)
    content = {"name": "p", "federation": "federation.yaml", "data": {"path": "rows.csv"}}
    settings, _ = load_party(write_yaml(tmp_path / "p.yaml", content))
    assert settings.keys == tmp_path / "keys"
    settings, _ = load_party(write_yaml(tmp_path / "p.yaml", {**content, "keys": "secret/p"}))
    assert settings.keys == tmp_path / "secret" / "p"


# Commitments

id_lists = st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=4), max_size=5, unique=True)


@deterministic
@given(id_lists, id_lists, st.binary(min_size=32, max_size=32))
def test_a_commitment_fits_the_same_ids_in_any_order_and_no_others(
    ids: list[str], others: list[str], key: bytes
) -> None:
    made = commit_to(ids, key, job=JOB)
    assert made == commit_to(ids[::-1], key, job=JOB)
    assert (made == commit_to(others, key, job=JOB)) == (set(ids) == set(others))
    assert made != commit_to(ids, bytes(32) if any(key) else b"1" * 32, job=JOB)
    assert made != commit_to(ids, key, job="another"), "the same ids cannot be recognised in another job"


def test_ids_that_run_together_alike_are_told_apart() -> None:
    assert commit_to(["ab", "c"], SECRET, job=JOB) != commit_to(["a", "bc"], SECRET, job=JOB)
    assert commit_to(["b"], SECRET, job="a") != commit_to([], SECRET, job="ab")


def test_a_party_keeps_what_opens_its_commitment_for_itself(tmp_path: Path) -> None:
    ours: dict[str, Any] = {"job": JOB, "party": "passive-1", "secret": SECRET}
    commitment = commit(tmp_path, ids=IDS, **ours)
    path = tmp_path / "requests" / f"{JOB}.json"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    kept = open_request(path)
    assert kept.ids == sorted(IDS)
    assert commit_to(IDS, bytes.fromhex(kept.key), job=JOB) == commitment
    assert commit(tmp_path, ids=IDS[::-1], **ours) == commitment, "a party that came back goes on"
    for other in ({"ids": ["p0009"]}, {"ids": IDS, "secret": bytes(32)}):
        with pytest.raises(DataError, match="holds another request of the same job"):
            commit(tmp_path, **{**ours, **other})
    with pytest.raises(PartyError, match=r"coordinator named the job '\.\./x'"):
        commit(tmp_path, **{**ours, "ids": IDS, "job": "../x"})


def test_every_request_has_a_secret_of_its_own_which_a_party_that_came_back_goes_on_with() -> None:
    own = secrets.token_bytes(32)
    secret = request_secret(own, job=JOB)
    assert len(secret) == 32 and request_secret(own, job=JOB) == secret
    assert request_secret(own, job="another") != secret
    assert request_secret(secrets.token_bytes(32), job=JOB) != secret


def test_all_parties_commit_alike_and_no_id_is_named(run: Run) -> None:
    content = run.content
    signed = {content["statements"][name]["statement"]["commitment"] for name in PARTIES}
    assert signed == {content["request"]["commitment"]}
    assert not any(one in run.text for one in IDS)


def test_a_document_of_an_earlier_form_names_the_release_that_reads_it(run: Run, tmp_path: Path) -> None:
    (said,) = failures(canonical(run.content | {"format": "fedora-certificate-1"}))
    assert "is of the form fedora-certificate-1, which is read by release 0.4.0 and earlier" in said
    path = tmp_path / "request.json"
    opening = run.folder / "keys" / "active" / "requests" / f"{JOB}.json"
    path.write_bytes(canonical(parse_canonical(opening.read_bytes()) | {"format": "fedora-request-1"}))
    with pytest.raises(DataError, match="fedora-request-1, which is read by release"):
        open_request(path)


# A certificate that holds


def test_a_certificate_of_real_statements_holds(run: Run) -> None:
    requests = [run.folder / "keys" / name / "requests" / f"{JOB}.json" for name in PARTIES]
    evidence = Evidence(run.folder, federation_of(run), requests, run.public_keys)
    made, checks = examine(run.text.encode(), evidence)
    assert made and not unvouched(made, evidence)
    assert [check for check in checks if not check.holds] == []


def test_the_figures_are_the_paper_s(run: Run) -> None:
    final = run.content["final"]
    assert final["constraint_residual"] == 0.0
    assert final["complementary_slackness"] == pytest.approx(0.75 * (1.25 - 1.3))
    assert final["stationarity_residual"] == pytest.approx(0.75**0.5)
    assert final["change"] == pytest.approx((4 + 5 + 6) ** 0.5)
    assert final["largest_uncertainty"] == pytest.approx(2 * 0.6931472)
    assert run.content["gaps"] == {"test_accuracy": pytest.approx(-0.01)}


@pytest.mark.parametrize("form", ["parameterwise", None])
def test_only_the_scalar_form_claims_feasibility_and_has_slackness(form: str | None, tmp_path: Path) -> None:
    content = make_run(tmp_path, form=form).content
    assert failures((tmp_path / "certificate.json").read_bytes()) == []
    assert content["final"]["complementary_slackness"] is None and content["final"]["no_slackness"]
    assert claims.FEASIBLE not in content["claims"] and claims.OPTIMALITY not in content["claims"]
    expected = claims.PARAMETERWISE if form else claims.NO_DUAL
    assert content["does_not_claim"][0] == expected
    if form:
        dual = content["final"]["dual"]
        assert dual["norm"] == pytest.approx(50**0.5) and dual["positive_share"] == 0.25 and dual["parameters"] == 30


def test_a_model_that_falls_short_or_was_recovered_claims_less(tmp_path: Path, run: Run) -> None:
    assert claims.FEASIBLE in run.content["claims"]
    short = make_run(tmp_path / "short", loss=1.0, goal="as-retrained").content
    assert short["final"]["constraint_residual"] == 0.25
    assert claims.FEASIBLE not in short["claims"]
    assert {claims.NOT_FEASIBLE, claims.RECOVERED, claims.NOT_STATIONARY, *claims.NEVER} == set(short["does_not_claim"])
    unknown = make_run(tmp_path / "unknown", loss=None).content
    assert unknown["final"]["constraint_residual"] is None
    assert claims.FEASIBLE not in unknown["claims"] and claims.NOT_FEASIBLE in unknown["does_not_claim"]


def test_the_sentences_of_a_format_never_change() -> None:
    """Old certificates are held to them: who changes one raises FORMAT, and says which release reads the old."""
    sentences = {name: value for name, value in vars(claims).items() if name.isupper()}
    assert (
        sha256(canonical(sentences)).hexdigest() == "217f5cbfb7e6b39591fe4b5a685b8c4322fb623e8325e7fab61e2d0240f31abd"
    )


# A certificate that does not


def test_one_flipped_byte_anywhere_fails(tmp_path: Path) -> None:
    data = make_run(tmp_path, parties=("active", "passive-1")).text.encode()
    assert not failures(data)
    seal = range(data.index(b'  "coordinator"'), data.index(b'  "does_not_claim"'))
    for position in range(len(data)):
        # Every bit has its turn. In the only entry that no signature is over, all bits have: among them the one that
        # changes the case of a letter, and with it no hexadecimal number.
        for mask in [1 << bit for bit in range(8)] if position in seal else [1 << position % 8]:
            changed = bytearray(data)
            changed[position] ^= mask
            assert failures(bytes(changed)), f"byte {position} with mask {mask:#x} goes unnoticed"


@pytest.mark.parametrize("cut", [0, 1, 100, -1])
def test_a_cut_off_file_fails(cut: int, run: Run) -> None:
    assert failures(run.text.encode()[:cut])


@deterministic
@given(st.binary(max_size=60) | values.map(canonical))
def test_what_is_no_certificate_is_refused_in_words(data: bytes) -> None:
    assert failures(data)


def changed(*path: str, to: Any) -> Callable[[Content], None]:
    """Return what changes one value in a certificate."""

    def change(content: Content) -> None:
        inner = content
        for name in path[:-1]:
            inner = inner[name]
        assert inner[path[-1]] != to
        inner[path[-1]] = to

    return change


def swapped(content: Content) -> None:
    """Exchange two parties' statements."""
    signed = content["statements"]
    signed["passive-1"], signed["passive-2"] = signed["passive-2"], signed["passive-1"]


def removed(content: Content) -> None:
    """Leave a party out."""
    del content["statements"]["passive-2"]


ALL = "active, passive-1, passive-2"
DISHONEST: dict[str, tuple[Callable[[Content], Any], str]] = {
    "swapped statements": (swapped, "the statement under passive-1 is passive-2's"),
    "a party left out": (removed, "the parties are active, passive-1, passive-2, but statements has active, passive-1"),
    "metrics": (
        changed("metrics", "unlearned", "test_accuracy", to=0.99),
        "`metrics` gives 0.99 for test_accuracy of unlearned, but active signed 0.85",
    ),
    "gaps": (changed("gaps", "test_accuracy", to=0.0), "`gaps.test_accuracy` is 0.0, but"),
    "a digest": (
        changed("models", "passive-1", "after", "sha256", to="ab" * 32),
        "passive-1 signed another model after",
    ),
    "rows": (changed("rows", "passive-1", "dropped", to=4), "passive-1 signed other row counts"),
    "rows asked for": (changed("request", "rows", to=4), "passive-1 dropped 3 rows, but 4 were asked for"),
    "a commitment": (changed("request", "commitment", to="ab" * 32), "passive-1 committed to other rows"),
    "method": (changed("method", "name", to="retrain"), f"{ALL} signed another request, method, time or phases"),
    "settings": (changed("method", "settings", "rounds", to=99), f"{ALL} signed another request, method,"),
    "classes": (changed("request", "classes", to=["<50K"]), f"{ALL} signed another request, method,"),
    "time": (changed("time", to="2020-02-02T02:02:02Z"), "but the certificate is of 2020-02-02T02:02:02Z"),
    "no time": (changed("time", to="2020-02-31T02:02:02Z"), "certificate: time: "),
    "phases": (changed("phases", "unlearn", to=9), "passive-1 ran other phases than `phases` says"),
    "metrics that nobody signed": (
        lambda content: content["metrics"]["unlearned"].update(mia_asr=0.5),
        "`metrics` gives 0.5 for mia_asr of unlearned, but active signed None",
    ),
    "a model that nobody measured": (
        lambda content: content["metrics"].update(ga={}),
        "`metrics` has ga without active's signature",
    ),
    "a list that is none": (changed("method", "settings", to={"offline": 5}), f"{ALL} signed another request"),
    "L_u": (changed("final", "uncertainty", "loss", to=1.38), "`final.uncertainty` is not what active signed"),
    "constraint residual": (changed("final", "constraint_residual", to=0.1), "`final.constraint_residual` is 0.1, but"),
    "slackness": (changed("final", "complementary_slackness", to=0.0), "`final.complementary_slackness` is 0.0, but"),
    "stationarity": (changed("final", "stationarity_residual", to=1e-6), "`final.stationarity_residual` is 1e-06, but"),
    "stationarity left out": (changed("final", "stationarity_residual", to=None), "is None, but 0.86"),
    "Ω": (changed("final", "dual", "omega", to=0.0), "`final.dual.omega` is 0.0, but 0.75"),
    "no Ω": (changed("final", "dual", to=None), "`final.dual.omega` is None, but 0.75"),
    "change": (changed("final", "change", to=0.0), "`final.change` is 0.0, but"),
    "rows of the residual": (changed("final", "residual_rows", to=50), "`final.residual_rows` is 50, but 97"),
    "dual form": (changed("method", "dual", to="parameterwise"), "states a dual variable of form scalar"),
    "bytes": (changed("bytes", "tensor", to=100), "`bytes.tensor` is 100, but its phases add up to 200"),
    "bytes counted": (changed("bytes", "links", to=[]), "passive-1 counted other bytes of embedding messages"),
    "kind of request": (changed("request", "kind", to="ids"), "without being a request for classes"),
    "job": (changed("job", to="another"), f"active's statement is of job {JOB}"),
    "a claim": (changed("claims", to=["All is forgotten."]), "`claims` says something else than the figures allow"),
    "a caveat": (changed("does_not_claim", to=[]), "`does_not_claim` leaves something out"),
    "a format": (changed("format", to="fedora-certificate-0"), "format: should be 'fedora-certificate-4'"),
    "a field more": (lambda content: content.update(verdict="fine"), "verdict: unknown setting"),
    "a field less": (lambda content: content.pop("bytes"), "bytes: is missing"),
    "a field less that means nothing": (lambda content: content["final"].pop("unseen"), "final.unseen: is missing"),
    "a field less that goes without saying": (
        lambda content: content["final"]["uncertainty"].pop("reduction"),
        "final.uncertainty.reduction: is missing",
    ),
    "a path for a name": (changed("models", "active", "after", "name", to="../x"), "models.active.after.name: "),
    "a huge number": (changed("final", "change", to=10**400), "final.change: "),
}


@pytest.mark.parametrize("case", DISHONEST)
def test_a_coordinator_that_changes_it_and_signs_again_is_found_out(case: str, run: Run) -> None:
    change, said = DISHONEST[case]
    content = run.content
    change(content)
    broken = failures(run.sealed(content))
    assert any(said in one for one in broken), broken


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (changed("rows", "dropped", to=2), "passive-1 dropped 2 rows, but 3 were asked for"),
        (changed("rows", "remaining", to=98), "passive-1 keeps 98 rows, but active 97"),
        (changed("phases", to={"unlearn": 9}), "passive-1 ran other phases than `phases` says"),
        (changed("commitment", to="ab" * 32), "passive-1 committed to other rows than `request` says"),
        (changed("joint", to="ab" * 32), "passive-1 signed another request, method, time or phases than this"),
        (changed("ended", to="2020-02-02T02:02:02Z"), "passive-1 was at work from"),
        (changed("dual", "omega", to=0.5), "the parties state different Ω: 0.5, 0.75"),
        (changed("residual", "rows", to=5), "measured the stationarity residual on different rows: [5, 97]"),
        (changed("change_squared", to=0.0), "`final.change` is"),
        (changed("change_squared", to=1e308), "`final.change` is"),
        (changed("bytes", "embedding", "sent", to=119), "passive-1 counted other bytes of embedding messages"),
        (changed("bytes", to={}), "passive-1 counted other bytes of dual messages"),
        (changed("role", to="active"), "passive-1 calls itself active, but `parties` has active for active"),
    ],
)
def test_parties_that_contradict_each_other_are_found_out(
    change: Callable[[Content], None], said: str, run: Run
) -> None:
    content = run.content
    change(content["statements"]["passive-1"]["statement"])
    broken = failures(run.sealed(run.resigned(content, "passive-1")))
    assert any(said in one for one in broken), broken


# Each member's key in turn


def leaves(value: object, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """Return the place of every value that holds no other; an empty list or mapping is one."""
    if isinstance(value, dict) and value:
        return [leaf for name, one in value.items() for leaf in leaves(one, (*path, name))]
    if isinstance(value, list) and value:
        return [leaf for place, one in enumerate(value) for leaf in leaves(one, (*path, place))]
    return [path]


def others(value: object) -> list[object]:
    """Return values of the same form that are not this one; a form may have only one."""
    match value:
        case bool():
            return [not value]
        case int():
            return [value + 1, max(0, value - 1)]
        case float():
            return [value + 0.125, value / 2]
        case str() if len(value) > 60 and set(value) <= set("0123456789abcdef"):
            return ["0" * len(value)]
        case str() if value.endswith("Z") and value[:2] == "20":
            return ["2020-02-02T02:02:02Z", value[:-3] + ("00Z" if value[-3:] != "00Z" else "01Z")]
        case str():
            return [f"{value}x", "retrain", "ids", "parameterwise", "as-retrained", "sum", "passive"]
        case None:
            return [0.5, 1, "x", ["x"], {}]
        case list() | dict():
            return [["x"], {"x": 1}]
    raise AssertionError(f"{value!r} is no JSON")


def put(content: Content, path: tuple[str | int, ...], value: object) -> None:
    """Change one value."""
    inner: Any = content
    for name in path[:-1]:
        inner = inner[name]
    inner[path[-1]] = value


def value_at(content: Content, path: tuple[str | int, ...]) -> object:
    inner: Any = content
    for name in path:
        inner = inner[name]
    return inner


def unnoticed(run: Run, places: list[tuple[str | int, ...]], sign: Callable[[Content], bytes]) -> list[str]:
    """Change one value after the other, sign anew, and return what `fedora verify` would not notice."""
    found, evidence = [], Evidence(trusted=run.public_keys)
    for place in places:
        before = value_at(run.content, place)
        for value in others(before):
            content = run.content
            put(content, place, value)
            if value != before and not failures(sign(content), evidence):
                found.append(f"{'.'.join(map(str, place))}: {before!r} to {value!r}")
    return found


def of_the_coordinator(place: tuple[str | int, ...]) -> bool:
    """Return whether a value is the coordinator's own account: bytes by the ledger, seconds."""
    return place[0] in ("bytes", "seconds")


def test_a_coordinator_can_change_no_value_but_its_own_by_itself(run: Run) -> None:
    places = [place for place in leaves(run.content) if place[0] != COORDINATOR]
    assert len(places) > 150
    assert not unnoticed(run, [one for one in places if not of_the_coordinator(one)], run.sealed)
    # Of its own account, what parties have counted too is held against them.
    own = unnoticed(run, [one for one in places if of_the_coordinator(one)], run.sealed)
    named = {one.partition(": ")[0].rsplit(".", 1)[-1] for one in own}
    assert named <= {"seconds", "predicted", "messages", "link", "phase", "tensor"}


@pytest.mark.parametrize("party", PARTIES)
def test_a_party_can_change_no_value_by_itself(party: str, run: Run) -> None:
    def sign(content: Content) -> bytes:
        return canonical(run.resigned(content, party))

    own = ("statements", party)  # whose key and signature are what it signs anew
    places = [one for one in leaves(run.content) if one[0] != COORDINATOR]
    assert not unnoticed(run, [one for one in places if one[:2] != own or one[2] == "statement"], sign)


@pytest.mark.parametrize("honest", PARTIES)
def test_one_honest_party_is_enough_to_keep_all_others_from_changing_what_was_done(honest: str, run: Run) -> None:
    joint = {"job", "time", "software", "parties", "request", "method", "phases"}

    def sign(content: Content) -> bytes:
        """All but one sign whatever was changed, also in what they stated themselves."""
        made = read({**content, COORDINATOR: run.content[COORDINATOR]})
        for party in set(PARTIES) - {honest}:
            stated = content["statements"][party]["statement"]
            stated |= {"joint": digest(joint_of(made)), "phases": content["phases"], "job": content["job"]}
            stated |= {"commitment": content["request"]["commitment"]}
            run.resigned(content, party)
        return run.sealed(content)

    def sign_if_it_can_be_read(content: Content) -> bytes:
        try:
            return sign(content)
        except (SettingsError, KeyError):
            return canonical(content)  # of no form at all, or without a statement of a party that it names

    places = [place for place in leaves(run.content) if place[0] in joint]
    assert not unnoticed(run, places, sign_if_it_can_be_read)


def test_two_digests_alike_contradict_a_change(run: Run) -> None:
    content = run.content
    models = content["statements"]["passive-1"]["statement"]["models"]
    models["after"]["sha256"] = content["models"]["passive-1"]["after"]["sha256"] = models["before"]["sha256"]
    broken = failures(run.sealed(run.resigned(content, "passive-1")))
    assert broken == ["passive-1 says that its parameters changed, but its two model files are the same"]


def test_a_statement_changed_by_the_coordinator_no_longer_fits_its_signature(run: Run) -> None:
    content = run.content
    content["statements"]["passive-1"]["statement"]["software"] = "fedora 9"
    broken = failures(run.sealed(content))
    assert broken == ["passive-1's signature does not fit: its statement was changed since"]


def test_a_statement_signed_with_another_key_passes_only_where_nobody_knows_the_keys(run: Run, tmp_path: Path) -> None:
    stranger = SigningKey.load_or_make(tmp_path)
    data = run.sealed(run.resigned(run.content, "passive-1", key=stranger))
    _, checks = examine(data, Evidence())
    nobody = "whether the key that passive-1 signed with is its own, nothing from outside says"
    assert Check(None, nobody) in checks and not failures(data)
    for evidence in (Evidence(federation=federation_of(run)), Evidence(trusted=run.public_keys)):
        broken = failures(data, evidence)
        assert broken == ["passive-1's signature is by another key than the one that is given for it"]


def test_one_who_signs_for_all_is_found_out(run: Run) -> None:
    content = run.content
    for party in PARTIES:
        content = run.resigned(content, party, key=run.keys[COORDINATOR])
    assert failures(run.sealed(content)) == ["two members sign with the same key"]


def test_a_certificate_of_another_federation_fails(run: Run) -> None:
    others = federation_of(run).model_copy(update={"passive": ["passive-1"]})
    broken = failures(run.text.encode(), Evidence(federation=others))
    assert len(broken) == 1 and broken[0].startswith(
        "the federation's parties are active, passive-1, the certificate's"
    )


# Files beside it


def test_a_model_file_that_is_another_fails_and_a_missing_one_is_named(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    data, path = run.text.encode(), tmp_path / "models" / "passive-2" / "unlearned.safetensors"
    assert not failures(data, Evidence(tmp_path / "models"))
    path.write_bytes(path.read_bytes() + b"x")
    broken = failures(data, Evidence(tmp_path / "models"))
    assert len(broken) == 1 and broken[0].startswith(f"passive-2's model after is not {path}, whose digest is")
    path.unlink()
    _, checks = examine(data, Evidence(tmp_path))
    assert Check(None, f"passive-2's model after was not looked at: there is no {path}") in checks


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (changed("ids", to=["p0001", "p0002", "p0004"]), "these are not the ids that passive-1 committed to"),
        (changed("key", to="ab" * 32), "these are not the ids that passive-1 committed to"),
        (changed("party", to="nobody"), "is a request to nobody, who has no statement here"),
        (changed("job", to="another"), f"is a request of job another, not of {JOB}"),
        (changed("format", to="x"), "is not a request that a party kept"),
    ],
)
def test_a_request_with_other_ids_or_another_key_fails(
    change: Callable[[Content], None], said: str, run: Run, tmp_path: Path
) -> None:
    content = parse_canonical((run.folder / "keys" / "passive-1" / "requests" / f"{JOB}.json").read_bytes())
    change(content)
    path = tmp_path / "request.json"
    path.write_bytes(canonical(content))
    broken = failures(run.text.encode(), Evidence(requests=[path]))
    assert len(broken) == 1 and said in broken[0]


def test_any_two_openings_can_be_compared(run: Run, tmp_path: Path) -> None:
    openings = {name: run.folder / "keys" / name / "requests" / f"{JOB}.json" for name in PARTIES}
    _, checks = examine(run.text.encode(), Evidence(requests=list(openings.values())))
    for pair in ("active and passive-1", "active and passive-2", "passive-1 and passive-2"):
        assert Check(True, f"{pair} were asked to forget the same 3 ids") in checks
    ids = ["p0001", "p0008", "p0009"]
    commit(tmp_path, job=JOB, party="passive-2", ids=ids, secret=SECRET)
    other = tmp_path / "requests" / f"{JOB}.json"
    broken = failures(run.text.encode(), Evidence(requests=[openings["passive-1"], other]))
    said = (
        "passive-1 and passive-2 were not asked to forget the same ids under one secret: 1 of 3 and 3 ids are the same"
    )
    assert broken == [f"{other}: these are not the ids that passive-2 committed to", said]


# What the coordinator accepts


@pytest.mark.parametrize(
    ("party", "change", "said"),
    [
        ("passive-1", {"signature": "00" * 64}, "passive-1 sent a statement whose signature does not fit"),
        ("passive-2", {}, "passive-2 signed its statement with another key than the federation file gives for it"),
    ],
)
def test_a_statement_that_is_not_its_party_s_is_refused_in_its_name(
    party: str, change: dict[str, str], said: str, run: Run
) -> None:
    message = Statement()
    message.CopyFrom(run.statements["passive-1"])
    for name, value in change.items():
        setattr(message, name, value)
    with pytest.raises(PartyError, match=said):
        accept(party, message, joint=run.joint, keys=run.public_keys)


def test_a_statement_of_another_job_or_role_or_form_is_refused(run: Run) -> None:
    message, key = run.statements["passive-1"], run.keys["passive-1"]
    others = run.joint.model_copy(update={"parties": Parties(active="passive-1", passive=["active", "passive-2"])})
    for joint in (run.joint.model_copy(update={"job": "another"}), others):
        with pytest.raises(PartyError, match="sent a statement of passive party passive-1 in job"):
            accept("passive-1", message, joint=joint, keys={})
    with pytest.raises(PartyError, match="signed another joint statement than the one that it was sent"):
        accept("passive-1", message, joint=run.joint.model_copy(update={"software": "fedora 2"}), keys={})
    loose = json.dumps(json.loads(message.statement))
    message = Statement(statement=loose, public_key=key.public, signature=key.sign(loose.encode()))
    with pytest.raises(PartyError, match="sent a statement that cannot be used: is not canonical JSON"):
        accept("passive-1", message, joint=run.joint, keys={})


def test_statements_that_do_not_fit_together_make_no_certificate(run: Run, tmp_path: Path) -> None:
    odd = one_statement(tmp_path, "passive-1", run.joint, {"form": "scalar", "omega": 0.5})
    signed = {**run.statements, "passive-1": sign_statement(odd, run.keys["passive-1"])}
    with pytest.raises(CertificateError, match=r"do not fit together: the parties state different Ω: 0\.5, 0\.75"):
        certificate(
            joint=run.joint,
            asked=ASKED,
            statements=signed,
            key=run.keys[COORDINATOR],
            keys={},
            traffic=traffic(),
            seconds=1.0,
        )


def test_a_party_signs_no_number_that_is_not_one(tmp_path: Path) -> None:
    with pytest.raises(FedoraError, match=r"passive-1's statement: dual\.scalar\.omega: should be a finite number"):
        one_statement(tmp_path, "passive-1", joint_statement("scalar"), {"form": "scalar", "omega": float("nan")})


def test_a_passive_party_cannot_state_what_needs_labels(tmp_path: Path) -> None:
    joint = joint_statement("scalar")
    content = one_statement(tmp_path, "active", joint, SCALAR)
    message = canonical(content | {"role": "passive", "party": "passive-1"})
    key = SigningKey.load_or_make(tmp_path)
    signed = Statement(statement=message.decode(), public_key=key.public, signature=key.sign(message))
    with pytest.raises(PartyError, match="is passive and has no labels"):
        accept("passive-1", signed, joint=joint, keys={})


# The command


def trust(run: Run, *members: str) -> list[str]:
    """Return the words that pin some members' keys."""
    return [word for name in members for word in ("--trust", f"{name}={run.public_keys[name]}")]


def test_the_command_checks_a_run_s_folder_and_says_what_is_claimed_and_what_not(run: Run) -> None:
    request = run.folder / "keys" / "passive-1" / "requests" / f"{JOB}.json"
    done = verify_command(run.folder, "--request", request, *trust(run, COORDINATOR, *PARTIES))
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"Holds: certificate of job {JOB}, ") and not done.stderr
    assert "✗" not in done.stdout
    assert "  ✓ passive-2 signed with the key that you gave for it\n" in done.stdout
    assert f"  ✓ passive-1's model after is {run.folder}/models/passive-1/unlearned.safetensors\n" in done.stdout
    assert "are those that passive-1 committed to\n" in done.stdout.replace("\n    ", " ")
    for sentence in (*claims.ALWAYS, claims.FEASIBLE, *claims.NEVER):
        assert " ".join(sentence.split()) in " ".join(done.stdout.split())


def test_keys_are_vouched_for_by_a_federation_file_a_file_of_keys_or_the_command_line(run: Run, tmp_path: Path) -> None:
    federation = tmp_path / "federation.yaml"
    federation.write_bytes((run.folder / "federation.yaml").read_bytes())
    some = {name: run.public_keys[name] for name in (COORDINATOR, "active")}
    pinned = write_yaml(tmp_path / "keys.yaml", {"keys": some})
    assert verify_command(run.folder, "--federation", federation).returncode == 0
    assert verify_command(run.folder, "--trusted-keys", pinned, *trust(run, *PARTIES[1:])).returncode == 0


@pytest.mark.parametrize("whom", [(), (COORDINATOR,), PARTIES, (COORDINATOR, "active", "passive-1")])
def test_a_certificate_whose_keys_nobody_from_outside_vouches_for_is_not_checked(
    whom: tuple[str, ...], run: Run
) -> None:
    strangers = ", ".join(name for name in (COORDINATOR, *PARTIES) if name not in whom)
    for path in (run.folder, run.folder / "certificate.json"):
        done = verify_command(path, *trust(run, *whom))
        assert done.returncode == UncheckedError.exit_code == 8
        assert done.stdout.startswith(f"Not checked: nothing from outside vouches for the keys of {strangers}, ")
        assert "✗" not in done.stdout and len(done.stderr.splitlines()) == 1


def test_what_came_in_the_folder_of_a_certificate_does_not_vouch_for_it(run: Run) -> None:
    assert verify_command(run.folder, "--federation", run.folder / "federation.yaml").returncode == 8
    pinned = write_yaml(run.folder / "keys.yaml", {"keys": run.public_keys})
    done = verify_command(run.folder, "--trusted-keys", pinned)
    assert done.returncode == SettingsError.exit_code and "came with the certificate" in done.stderr


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["active"], "--trust: 'active' is not a member's key; allowed: NAME=KEY"),
        (["active=AB"], "--trust: 'active=AB' is not a member's key"),
        (["active=" + "ab" * 32, "active=" + "cd" * 32], "two different keys are given for active"),
    ],
)
def test_a_key_that_is_none_is_not_trusted(given: list[str], said: str) -> None:
    with pytest.raises(SettingsError) as caught:
        trusted_keys({}, None, given)
    assert said in str(caught.value)


def test_the_command_fails_with_its_own_exit_code_and_repeats_no_claim(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "certificate.json"
    content = run.content
    content["seconds"] = 1.0
    path.write_bytes(canonical(content))
    done = verify_command(path)
    assert done.returncode == CertificateError.exit_code == 7
    assert done.stdout.startswith("Does not hold: 1 of ")
    assert "  ✗ the coordinator's signature does not fit: the whole was changed since\n" in done.stdout
    assert "  – whether the key that active signed with is its own, nothing from outside says" in done.stdout
    assert claims.FEASIBLE not in done.stdout
    assert done.stderr.startswith(f"error: {path}: does not hold: 1 of ") and len(done.stderr.splitlines()) == 1


def test_the_command_names_a_file_that_is_not_there(tmp_path: Path) -> None:
    done = verify_command(tmp_path)
    assert done.returncode == DataError.exit_code
    assert done.stderr == f"error: {tmp_path}/certificate.json: cannot be read: No such file or directory\n"


def test_the_documented_check_needs_only_json_and_ed25519(run: Run) -> None:
    docs = (Path(__file__).parents[1] / "docs" / "certificate.md").read_text(encoding="utf-8")
    program = docs.partition("```python\n")[2].partition("```")[0]
    assert program
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=run.folder, text=True, capture_output=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [f"{name} signed" for name in (COORDINATOR, *PARTIES)]


def test_signed_text_can_be_cut_out_of_the_file_line_by_line(run: Run) -> None:
    lines = run.text.splitlines(keepends=True)
    start = lines.index('  "coordinator": {\n')
    end = lines.index("  },\n", start)
    seal = run.content[COORDINATOR]
    assert verify(seal["public_key"], "".join(lines[:start] + lines[end + 1 :]).encode(), seal["signature"])
    start = lines.index('    "passive-1": {\n', lines.index('  "statements": {\n'))
    start = lines.index('      "statement": {\n', start)
    end = lines.index("      }\n", start)
    text = "".join(["{\n", *(line.removeprefix(" " * 6) for line in lines[start + 1 : end + 1])])
    assert text == run.statements["passive-1"].statement


def test_a_clock_that_is_set_back_while_a_job_runs_does_not_end_the_work_before_it_began() -> None:
    began = "2999-01-01T12:00:00Z"
    ended = now(not_before=began)
    assert ended == began and fits_clocks(began, began, ended)
    assert now(not_before="2000-01-01T12:00:00Z") > "2000-01-01T12:00:00Z"
