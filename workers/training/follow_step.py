"""Tells a student where in the run it is, also after a resumption."""

from typing import Any, Protocol

from transformers import TrainerCallback

__all__ = ["FollowStep"]


class Student(Protocol):
    """What learns by the step."""

    step: int
    num_steps: int


class FollowStep(TrainerCallback):  # type: ignore[misc]
    """Sets `step` and `num_steps` before each step."""

    def __init__(self, student: Student) -> None:
        self._student = student

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._student.step, self._student.num_steps = state.global_step, state.max_steps
