"""Steps that are recorded start from buffers: these are filled with a state, however its arrays are stored."""

from dataclasses import dataclass
from typing import Any

import pytest

from suffice.cuda import memory as cuda


@dataclass
class State:
    by_rows: Any
    by_columns: Any
    numbers: Any
    same: Any
    flags: Any
    none: Any


def test_buffers_become_the_state():
    torch = pytest.importorskip("torch")

    def state(order, flags):
        rows, columns, numbers = (torch.rand(3, 4), torch.rand(4, 3).T, torch.rand(5))
        first, second = (rows, columns) if order else (columns, rows)
        doubles = [one.double() for one in (first, second, numbers)]
        return State(*doubles, torch.ones(2, dtype=torch.float64), torch.tensor(flags), torch.ones(0, 4))

    buffers = cuda._copy(state(True, [True, False]))
    for order in (True, False):  # stored as the buffers are, and otherwise
        new = state(order, [False, True])
        new.same = buffers.same
        cuda._fill(buffers, new)
        for name, value in vars(new).items():
            assert torch.equal(getattr(buffers, name), value), name
