"""scikit-learn's callbacks (from 1.9 on): the search, its evaluations and the final fit as tasks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

from suffice.result import Record

__all__ = ["CallbackSupportMixin", "CallbackTasks", "with_callbacks"]

try:
    from sklearn.callback import CallbackSupportMixin, with_callbacks
except ImportError:  # before scikit-learn 1.9

    class CallbackSupportMixin:  # type: ignore[no-redef]
        """scikit-learn has no callbacks."""

    def with_callbacks(method: Any) -> Any:
        """The method as it is."""
        return method


class CallbackTasks:
    """The search as tasks of scikit-learn's callbacks, where it has them and some are set; else nothing happens."""

    def __init__(self, search: Any, X: Any, y: Any, root: Any) -> None:
        self.search, self.X, self.y, self.root = search, X, y, root
        self.open: list[Any] = []  # evaluations that have begun
        if root is not None:
            root.call_on_fit_task_begin(estimator=search, X=X, y=y)
            self.within = root.subcontext(task_name="search", max_subtasks=None)
            self.within.call_on_fit_task_begin(estimator=search, X=X, y=y)

    @classmethod
    def of(cls, search: Any, X: Any, y: Any) -> CallbackTasks:
        if not hasattr(search, "_skl_callbacks"):
            return cls(search, X, y, None)
        return cls(search, X, y, search._init_callback_context(max_subtasks=1 + bool(search.refit)))

    def begin(self) -> None:
        if self.root is not None:
            self.open.append(self.within.subcontext(task_name="evaluation"))
            self.open[-1].call_on_fit_task_begin(estimator=self.search, X=self.X, y=self.y)

    def told(self, record: Record) -> None:
        if self.root is not None:
            task = self.open.pop(0)
            if task.call_on_fit_task_end(estimator=self.search, X=self.X, y=self.y, metadata={"record": record}):
                raise StopIteration

    @contextmanager
    def refit(self) -> Iterator[CallbackTasks]:
        if self.root is None:
            yield self
            return
        self.within.call_on_fit_task_end(estimator=self.search, X=self.X, y=self.y)
        self.within = self.root.subcontext(task_name="refit")
        self.within.call_on_fit_task_begin(estimator=self.search, X=self.X, y=self.y)
        yield self

    def propagated(self, estimator: Any) -> Any:
        return nullcontext() if self.root is None else self.within.propagate_callback_context(estimator)

    def end(self) -> None:
        if self.root is not None:
            for task in (self.within, self.root):
                task.call_on_fit_task_end(estimator=self.search, X=self.X, y=self.y)
