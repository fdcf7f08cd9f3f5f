"""Viewers of the Train page without browsers: sessions that speak the server's own protocol, timer included.

A page in a browser opens a websocket, has the script run, and from then on asks for its live panel anew whenever its
timer says so, whether the last answer has come or not; that is all that a server knows of it, and all that is done
here. Drawing is left out, because in a class it is done by other machines. Messages are protocol buffers of the
installed streamlit.

As a program (``python -m nqlab.bench.viewers ADDRESS COUNT``) it keeps that many viewers, reads a word a line from
standard input and answers each with a line of JSON: ``open`` (all of them, until each has seen the race's step),
``rest`` (stop the timers), ``go``, and ``look`` (what each has seen so far).
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
from typing import Any

from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from websockets.asyncio.client import ClientConnection, connect

STEP = re.compile(r"step ([\d,]+) of")
PATIENCE_S = 300.0


class Viewer:
    """One open page. ``step`` is what its headline says, ``ticks`` how often the live panel has come, ``received`` bytes."""

    def __init__(self, address: str, query: str) -> None:
        self.address, self.query = address, query
        self.step, self.ticks, self.received = -1, 0, 0
        self.resting = False
        self._page_hash = ""
        self._timer: asyncio.Task[None] | None = None

    async def look_on(self) -> None:
        """Until it is cancelled."""
        async with connect(self.address, subprotocols=["streamlit"], max_size=None) as socket:  # type: ignore[list-item]
            await self._ask(socket)
            async for data in socket:
                assert isinstance(data, bytes)
                self.received += len(data)
                self._take(ForwardMsg.FromString(data), socket)

    async def _ask(self, socket: ClientConnection, fragment: str = "") -> None:
        """For the whole page, or for a fragment of it as a timer does."""
        ask = BackMsg()
        ask.rerun_script.query_string = self.query
        ask.rerun_script.page_script_hash = self._page_hash
        ask.rerun_script.fragment_id = fragment
        ask.rerun_script.is_auto_rerun = bool(fragment)
        await socket.send(ask.SerializeToString())

    def _take(self, message: Any, socket: ClientConnection) -> None:
        kind = message.WhichOneof("type")
        if kind == "new_session":
            self._page_hash = message.new_session.page_script_hash
        elif kind == "page_info_changed":
            self.query = message.page_info_changed.query_string
        elif kind == "auto_rerun":
            if self._timer is not None:
                self._timer.cancel()
            self._timer = asyncio.create_task(self._tick(socket, message.auto_rerun.interval, message.auto_rerun.fragment_id))
        elif kind == "script_finished":
            self.ticks += message.script_finished == ForwardMsg.FINISHED_FRAGMENT_RUN_SUCCESSFULLY
        elif kind == "delta" and (found := STEP.search(message.delta.new_element.markdown.body)):
            self.step = int(found[1].replace(",", ""))

    async def _tick(self, socket: ClientConnection, interval_s: float, fragment: str) -> None:
        while True:
            await asyncio.sleep(interval_s)
            if not self.resting:
                await self._ask(socket, fragment)


async def _serve(address: str, query: str, count: int) -> None:
    viewers = [Viewer(address, query) for _ in range(count)]
    tasks: list[asyncio.Task[None]] = []
    loop = asyncio.get_running_loop()
    while word := (await loop.run_in_executor(None, sys.stdin.readline)).strip():
        if word == "open":
            tasks = [asyncio.create_task(viewer.look_on()) for viewer in viewers]
            await asyncio.wait_for(_all_see(viewers, tasks), PATIENCE_S)
        for viewer in viewers:
            viewer.resting = word == "rest" if word != "look" else viewer.resting
        seen = [{"step": viewer.step, "ticks": viewer.ticks, "received": viewer.received} for viewer in viewers]
        sys.stdout.write(json.dumps(seen) + "\n")
        sys.stdout.flush()
    for task in tasks:
        task.cancel()


async def _all_see(viewers: list[Viewer], tasks: list[asyncio.Task[None]]) -> None:
    while any(viewer.step < 0 for viewer in viewers):
        for task in tasks:
            if task.done():
                task.result()  # a connection that has ended before its time says why
        await asyncio.sleep(0.1)


if __name__ == "__main__":
    asyncio.run(_serve(sys.argv[1], sys.argv[2], int(sys.argv[3])))
