"""What a server lends to a room, and what whoever meets a limit is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from nqlab import corpus as corpora
from nqlab import limits, settings
from nqlab.runs import launch
from nqlab.runs.study import Study
from nqlab.runs.sweep import save_study
from tests.small import small

DOCS = {"corpus": "python-docs"}


@pytest.fixture
def room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data_dir: Path) -> Path:
    """A limits file; the data folder is set up first, for it unsets the variable."""
    path = tmp_path / "room.toml"
    path.write_text("steps = 50\nparameters = 100_000\nqueue = 0\nupload_bytes = 1000\nruns_in_a_study = 3\nruns_in_a_race = 2\n")
    monkeypatch.setenv("NQLAB_LIMITS", str(path))
    return path


def test_a_persons_own_machine_has_no_limits_but_the_usual(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NQLAB_LIMITS", raising=False)
    assert limits.words() == []
    limits.check_run(10**12, 10**6)
    limits.check_queue(10**3)


def test_each_limit_has_its_sentence(room: Path, runs_dir: Path) -> None:
    with pytest.raises(ValueError, match="steps 51 are more than the 50 that this server trains"):
        launch.check([small(**DOCS, steps=51)])
    with pytest.raises(ValueError, match="parameters and this server trains at most 100,000"):
        launch.check([small(**DOCS, steps=5, n_embd=256)])
    with pytest.raises(ValueError, match="3 runs are too many for one race; at most 2"):
        launch.check([small(**DOCS, steps=5)] * 3)
    with pytest.raises(ValueError, match=r"the text has 1,200 bytes; at most 1,000 are taken"):
        corpora.add_text("to be or not\n" * 92 + "abcd")
    with pytest.raises(ValueError, match="4 runs and this server fills studies of at most 3"):
        save_study(runs_dir, Study(name="s", settings={"steps": 5}, seeds=(0, 1)))
    assert len(limits.words()) == 6


def test_a_full_queue_says_so_and_nothing_is_made(room: Path, runs_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "spawn", lambda race, runs: None)
    launch.start(runs_dir, [small(**DOCS, steps=5)])
    with pytest.raises(ValueError, match="0 races wait in line already"):
        launch.start(runs_dir, [small(**DOCS, steps=5)])
    assert len(list((runs_dir / ".races").glob("*"))) == 1


def test_the_file_is_read_anew_when_it_changes(room: Path) -> None:
    assert limits.current().steps == 50
    room.write_text("steps = 70\nslots = 3\nteacher = 'chalk'\n")
    assert limits.current().steps == 70
    assert settings.slots() == 3
    assert "chalk" not in " ".join(limits.words())


@pytest.mark.parametrize(
    ("text", "said"),
    [("steps = 'many'", "steps = 'many'"), ("stepps = 3", "limits are slots, queue"), ("= 3", "no TOML file"), ("slots = 0", "slots = 0")],
)
def test_a_wrong_file_opens_nothing(room: Path, text: str, said: str) -> None:
    room.write_text(text)
    with pytest.raises(ValueError, match=said):
        limits.current()


def test_the_file_that_make_room_reads_is_right(monkeypatch: pytest.MonkeyPatch) -> None:
    room = Path(__file__).parents[1] / ".streamlit" / "room.toml"
    monkeypatch.setenv("NQLAB_LIMITS", str(room))
    assert len(limits.words()) == 7
    assert f"NQLAB_LIMITS={room.relative_to(room.parents[1])}" in (room.parents[1] / "Makefile").read_text(encoding="utf-8")


def test_a_file_that_is_not_there_opens_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NQLAB_LIMITS", "/no/such/file.toml")
    with pytest.raises(ValueError, match="cannot be read"):
        limits.current()
