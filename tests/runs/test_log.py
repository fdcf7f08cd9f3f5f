from __future__ import annotations

from pathlib import Path

import pytest

from nqlab.runs.log import EventReader, EventWriter, cut_back, last_record


def write(path: Path, *records: dict[str, object]) -> None:
    writer = EventWriter(path)
    for record in records:
        writer.write(record)
    writer.close()


def step(n: int) -> dict[str, object]:
    return {"type": "step", "step": n, "loss": n + 0.1}


def checkpoint(n: int) -> dict[str, object]:
    return {"type": "checkpoint", "step": n}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "events.jsonl"


def test_records_come_back_as_they_were_written(path: Path) -> None:
    sample = {"type": "sample", "step": 0, "text": 'né 🙂 "quoted"\n\u2028 next\x85 and \\'}
    write(path, sample, step(0))
    assert EventReader(path).read() == [sample, step(0)]
    assert last_record(path) == step(0)
    assert path.read_bytes().count(b"\n") == 2


def test_a_reader_goes_on_where_it_left_off(path: Path) -> None:
    reader = EventReader(path)
    assert reader.read() == []
    write(path, step(0))
    assert reader.read() == [step(0)]
    assert reader.read() == [step(0)]
    write(path, step(1), step(2))
    assert reader.read() == [step(0), step(1), step(2)]


def test_each_record_can_be_read_as_soon_as_it_is_written(path: Path) -> None:
    writer, reader = EventWriter(path), EventReader(path)
    for n in range(3):
        writer.write(step(n))
        assert reader.read()[-1] == step(n)
    writer.close()


def test_a_torn_last_line_is_left_until_it_is_whole(path: Path) -> None:
    write(path, step(0), step(1))
    reader = EventReader(path)
    with path.open("ab") as file:
        file.write(b'{"type": "step", "st')
        file.flush()
        assert reader.read() == [step(0), step(1)]
        assert last_record(path) == step(1)
        file.write(b'ep": 2, "loss": 2.1}\n')
    assert reader.read() == [step(0), step(1), step(2)]
    assert last_record(path) == step(2)


def test_a_line_torn_within_a_character_is_left_too(path: Path) -> None:
    write(path, {"type": "sample", "step": 0, "text": "🙂"})
    whole = path.read_bytes()
    path.write_bytes(whole[: whole.index("🙂".encode()) + 2])
    assert EventReader(path).read() == []
    assert last_record(path) is None


def test_what_is_written_after_a_torn_line_is_not_lost_with_it(path: Path) -> None:
    path.write_bytes(b'{"type": "step", "step": 0, "loss": 0.1}\n{"type": "st')
    write(path, {"type": "failed", "step": 1, "message": "m"})
    assert EventReader(path).read() == [step(0), {"type": "failed", "step": 1, "message": "m"}]
    assert last_record(path) == {"type": "failed", "step": 1, "message": "m"}


@pytest.mark.parametrize("line", [b"garbage", b"[1]", b"{}", b'{"type": "step"}', b'{"type": "step", "step": "x"}', b"\xff\xfe", b""])
def test_an_unreadable_line_is_skipped(path: Path, line: bytes) -> None:
    write(path, step(0))
    with path.open("ab") as file:
        file.write(line + b"\n")
    assert last_record(path) == step(0)
    write(path, step(1))
    assert EventReader(path).read() == [step(0), step(1)]


def test_a_reader_notices_that_the_file_was_replaced(path: Path) -> None:
    write(path, *map(step, range(5)), checkpoint(5), step(5))
    reader = EventReader(path)
    before = reader.read()
    assert len(before) == 7
    cut_back(path, 5)
    write(path, {"type": "resumed", "step": 5}, step(5), step(6), step(7))  # longer than before: only its identity differs
    assert reader.read() == [*map(step, range(5)), checkpoint(5), {"type": "resumed", "step": 5}, step(5), step(6), step(7)]
    assert len(before) == 7, "what was handed out is not changed afterwards"


def test_a_reader_notices_that_the_file_became_shorter(path: Path) -> None:
    write(path, step(0), step(1))
    reader = EventReader(path)
    reader.read()
    with path.open("r+b") as file:
        file.truncate(path.read_bytes().index(b"\n") + 1)
    assert reader.read() == [step(0)]


def test_the_last_record_of_a_long_file_is_found(path: Path) -> None:
    write(path, *map(step, range(5000)))
    assert path.stat().st_size > 2 * 65536
    assert last_record(path) == step(4999)


def test_the_last_record_is_found_behind_the_longest_sample(path: Path) -> None:
    sample = {"type": "sample", "step": 3, "text": "🙂" * 10_000}
    write(path, step(2), sample)
    assert last_record(path) == sample


def test_a_missing_file_has_no_records(path: Path) -> None:
    assert EventReader(path).read() == []
    assert last_record(path) is None
    cut_back(path, 3)
    assert not path.exists()


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_a_number_that_is_no_json_is_not_written(path: Path, number: float) -> None:
    writer = EventWriter(path)
    with pytest.raises(ValueError, match="JSON"):
        writer.write({"type": "step", "step": 0, "loss": number})
    writer.close()


def test_cutting_back_keeps_what_lies_before_the_checkpoint_and_the_checkpoint(path: Path) -> None:
    write(path, checkpoint(0), step(0), step(1), checkpoint(2), step(2), checkpoint(3), {"type": "stopped", "step": 3})
    cut_back(path, 2)
    assert EventReader(path).read() == [checkpoint(0), step(0), step(1), checkpoint(2)]


def test_cutting_back_goes_to_the_last_checkpoint_of_that_step(path: Path) -> None:
    write(path, step(0), checkpoint(1), {"type": "evaluation", "step": 1}, checkpoint(1), {"type": "stopped", "step": 1})
    cut_back(path, 1)
    assert EventReader(path).read() == [step(0), checkpoint(1), {"type": "evaluation", "step": 1}, checkpoint(1)]


def test_without_a_checkpoint_everything_is_computed_anew(path: Path) -> None:
    write(path, step(0), step(1))
    cut_back(path, None)
    assert EventReader(path).read() == []
    assert path.exists()
