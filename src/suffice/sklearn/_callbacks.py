"""scikit-learn's callbacks (from 1.9 on): the search, its evaluations and the final fit as tasks."""

from __future__ import annotations

from contextlib import nullcontext
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

    def __init__(self, search: Any, X: Any, y: Any) -> None:
        self.about = {"estimator": search, "X": X, "y": y}
        self.open: list[Any] = []  # evaluations that have begun
        self.root: Any = None
        if hasattr(search, "_skl_callbacks"):
            self.root = search._init_callback_context(max_subtasks=1 + bool(search.refit))
            self.root.call_on_fit_task_begin(**self.about)
            self.within = self._begun(self.root, task_name="search", max_subtasks=None)

    def _begun(self, context: Any, **task: Any) -> Any:
        made = context.subcontext(**task)
        made.call_on_fit_task_begin(**self.about)
        return made

    def begin_evaluation(self) -> None:
        if self.root is not None:
            self.open.append(self._begun(self.within, task_name="evaluation"))

    def end_evaluation(self, record: Record) -> None:
        if self.root is not None and self.open.pop(0).call_on_fit_task_end(**self.about, metadata={"record": record}):
            raise StopIteration

    def refit(self) -> None:
        if self.root is not None:
            self.within.call_on_fit_task_end(**self.about)
            self.within = self._begun(self.root, task_name="refit")

    def propagated(self, estimator: Any) -> Any:
        return nullcontext() if self.root is None else self.within.propagate_callback_context(estimator)

    def end(self) -> None:
        if self.root is not None:
            for task in (self.within, self.root):
                task.call_on_fit_task_end(**self.about)
