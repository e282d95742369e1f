"""Many small steps on a CUDA device without the cost of launching each: a few steps recorded as one CUDA graph.

On the size of the paper's problem a step takes about 70 microseconds; launching its operations one by one takes more
than 300. Only torch records graphs; on every other kind of array the steps are simply made.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

RECORDED = 20  # steps in one graph
WORTH = 80  # steps made or asked for before a recording pays


class Stepper:
    """`step` made many times on states that are dataclasses of arrays, all of the same shapes."""

    def __init__(self, step: Callable[[Any], Any], *, on_cuda: bool) -> None:
        self._step, self.on_cuda = step, on_cuda
        self._made = 0
        self._graph: Any = None
        self._buffers: Any = None

    def advance(self, state: Any, count: int) -> Any:
        """The state after `count` further steps."""
        while count >= RECORDED and self.on_cuda and self._made + count >= WORTH:
            if self._graph is None:
                state = self._record(state)
                count -= 1
                continue
            state, count = self._replay(state, count // RECORDED), count % RECORDED
        for _ in range(count):
            state = self._step(state)
        self._made += count
        return state

    def _record(self, state: Any) -> Any:
        """Makes one step, then records RECORDED more on buffers of its own."""
        torch: Any = importlib.import_module("torch")
        aside = torch.cuda.Stream()
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):  # libraries set themselves up before a recording may begin
            state = self._step(state)
        torch.cuda.current_stream().wait_stream(aside)
        self._buffers = _copy(state)
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            end = self._buffers
            for _ in range(RECORDED):
                end = self._step(end)
            _fill(self._buffers, end)
        return state

    def _replay(self, state: Any, times: int) -> Any:
        _fill(self._buffers, state)
        for _ in range(times):
            self._graph.replay()
        return _copy(self._buffers)


def _copy(state: Any) -> Any:
    return type(state)(*(value.clone() for value in vars(state).values()))


def _fill(buffers: Any, state: Any) -> None:
    """Arrays that are stored alike are copied by one kernel: one for each takes half as long as a step."""
    torch: Any = importlib.import_module("torch")
    both = zip(vars(buffers).values(), vars(state).values(), strict=True)
    pairs = [(buffer, value) for buffer, value in both if buffer is not value and buffer.numel() > 0]
    alike = [pair for pair in pairs if pair[0].stride() == pair[1].stride() and pair[0].dtype == torch.float64]
    if alike:
        torch._foreach_copy_(*map(list, zip(*alike, strict=True)))
    for buffer, value in pairs:
        if not any(buffer is done for done, _ in alike):
            buffer.copy_(value)
