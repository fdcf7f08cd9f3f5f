"""The cells of a study on the workers of a dask scheduler: no shared disk, nothing but its address.

The text travels with the work; events come back while a cell trains, so that its curve can be watched, and once more,
whole, when it has ended. A worker that dies takes nothing with it: the scheduler gives its cell to another one.
nqlab, in the same version, must be installed where the workers run.
"""

from __future__ import annotations

import dataclasses
import secrets
import threading
import time
import zlib
from typing import TYPE_CHECKING, Any

from nqlab import corpus as corpora
from nqlab.config import RunConfig
from nqlab.runs.cells import records_of
from nqlab.runs.files import write_bytes, write_json
from nqlab.runs.log import EventWriter, Record, as_lines

if TYPE_CHECKING:
    from nqlab.runs.sweep import Sweep

LIVE_S = 1.0  # events of a training cell are sent at most so often
POLL_S = 0.2
CONNECT_S = 10

_one_at_a_time = threading.Lock()  # dropout draws from a generator that a process has once


class Cluster:
    """One sweep on one scheduler."""

    def __init__(self, sweep: Sweep, address: str) -> None:
        self.sweep, self.address = sweep, address
        self.topic = f"nqlab-{secrets.token_hex(8)}"
        self._lock = threading.Lock()
        self._attempts: dict[str, str] = {}  # cell -> the attempt whose events its file holds
        self._ended: set[str] = set()

    def run(self) -> None:
        """Until every cell has ended or the sweep is told to stop. ValueError when no scheduler answers."""
        from distributed import Client

        try:
            client = Client(self.address, timeout=CONNECT_S, name="nqlab")
        except (OSError, ValueError) as error:
            raise ValueError(f"no dask scheduler answers at {self.address!r} ({error}); give it as tcp://HOST:PORT") from None
        with client:
            client.subscribe_topic(self.topic, self._heard)
            self._wait(client, self._submit(client))

    def _submit(self, client: Any) -> dict[Any, RunConfig]:
        texts: dict[str, Any] = {}
        futures: dict[Any, RunConfig] = {}
        while (config := self.sweep.take()) is not None:
            if config.corpus not in texts:
                corpus = corpora.load(config.corpus)
                # a task, not scattered data: when the worker that holds it dies, it can be made again
                texts[config.corpus] = client.submit(unpacked, *packed_text(corpus), pure=False)
            key = f"nqlab-{config.short_hash()}-{secrets.token_hex(4)}"
            futures[client.submit(train_elsewhere, config.to_json(), texts[config.corpus], self.topic, key=key, priority=-len(futures))] = (
                config
            )
        return futures

    def _wait(self, client: Any, pending: dict[Any, RunConfig]) -> None:
        while pending:
            if self.sweep.must_stop():
                client.cancel(list(pending), force=True)
                return
            for future in [f for f in pending if f.done()]:
                self._settle(future, pending.pop(future))
            time.sleep(POLL_S)

    def _settle(self, future: Any, config: RunConfig) -> None:
        """Put a cell that has ended on disk."""
        run = self.sweep.place.cell(config)
        if future.status != "finished":
            error = future.exception() if future.status == "error" else None
            words = (str(error).strip().splitlines() or [type(error).__name__])[0] if error else f"the scheduler says {future.status}"
            with self._lock:
                self._ended.add(run.id)
            self.sweep.ended(config, "failed", words)
            return
        records, meta = future.result()
        with self._lock:
            self._ended.add(run.id)
            write_json(run.folder / "meta.json", run.meta | meta)
            write_bytes(run.events, as_lines(records))
        self.sweep.ended(config, records[-1]["type"])
        future.release()

    def _heard(self, message: tuple[Any, dict[str, Any]]) -> None:
        """Append the events that a training cell has sent; a new attempt begins the file anew."""
        news = message[1]
        run = self.sweep.place.folder / "cells" / news["cell"]
        with self._lock:
            if news["cell"] in self._ended:
                return
            path = run / "events.jsonl"
            if self._attempts.get(news["cell"]) != news["attempt"]:
                self._attempts[news["cell"]] = news["attempt"]
                write_bytes(path, b"")
                write_json(run / "meta.json", news["meta"])
            writer = EventWriter(path)
            for record in news["records"]:
                writer.write(record)
            writer.close()


def packed_text(corpus: corpora.Corpus) -> tuple[corpora.Corpus, bytes]:
    """A corpus as it is sent: without its text and what was computed of it, and the text, compressed."""
    return dataclasses.replace(corpus, text=""), zlib.compress(corpus.text.encode("utf-8"))


def unpacked(bare: corpora.Corpus, packed: bytes) -> corpora.Corpus:
    """Inverse of :func:`packed_text`."""
    return dataclasses.replace(bare, text=zlib.decompress(packed).decode("utf-8"))


def train_elsewhere(config_json: str, corpus: corpora.Corpus, topic: str) -> tuple[list[Record], dict[str, Any]]:
    """Run on a worker: train one cell; all its events, and the circumstances. Sends news about itself meanwhile.

    A cell whose future was cancelled notices between two updates and ends.
    """
    from distributed import get_worker

    worker = get_worker()
    key, attempt = worker.get_current_task(), secrets.token_hex(4)
    config = RunConfig.from_json(config_json)
    records: list[Record] = []
    sent, told = 0, time.monotonic()

    def cancelled() -> bool:
        task = worker.state.tasks.get(key)
        return task is None or task.state != "executing"

    with _one_at_a_time:
        for record, meta in records_of(config, corpus, cancelled):
            records.append(record)
            if time.monotonic() - told > LIVE_S:
                news = {"cell": config.short_hash(), "attempt": attempt, "records": records[sent:], "meta": meta}
                worker.log_event(topic, news)
                sent, told = len(records), time.monotonic()
    return records, meta
