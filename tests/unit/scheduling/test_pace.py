"""How long an answer takes, from those that ended."""

import pytest

from workers.scheduling.pace import MARGIN, PaceMeter, Work

WORK = Work(prompt_tokens=100, max_output_tokens=50)


def measured(
    output_s: float, *, output_tokens: int = 50, times: int = 100, meter: PaceMeter | None = None
) -> PaceMeter:
    meter = meter or PaceMeter()
    for _ in range(times):
        meter.ended(WORK, output_tokens, 0.2, 0.2 + output_s * (output_tokens - 1))
    return meter


def test_before_the_first_answer_nothing_is_refused() -> None:
    assert PaceMeter().expected_s(WORK) == PaceMeter().best_s(WORK) == 0.0


def test_prompt_and_output_count_at_their_own_pace() -> None:
    meter = measured(0.01)
    assert meter.best_s(WORK) == pytest.approx(0.2 + 50 * 0.01, rel=0.01)
    assert meter.best_s(Work(0, 10)) == pytest.approx(0.1, rel=0.01)
    assert meter.expected_s(WORK) == pytest.approx(MARGIN * meter.best_s(WORK), rel=0.05)


def test_answers_that_end_early_shorten_what_is_expected() -> None:
    assert measured(0.01, output_tokens=10).best_s(WORK) == pytest.approx(0.2 + 10 * 0.01, rel=0.01)


def test_the_best_pace_is_remembered_under_load_and_fades() -> None:
    meter = measured(0.05, times=20, meter=measured(0.01))
    assert meter.best_s(WORK) < 0.6 * meter.expected_s(WORK)
    measured(0.05, times=500, meter=meter)
    assert meter.best_s(WORK) == pytest.approx(meter.expected_s(WORK) / MARGIN, rel=0.01)


@pytest.mark.parametrize(("tokens", "total_s"), [(0, 1.0), (5, 0.0)])
def test_answers_without_a_time_or_tokens_say_nothing(tokens: int, total_s: float) -> None:
    meter = PaceMeter()
    meter.ended(WORK, tokens, 0.0, total_s)
    assert meter.expected_s(WORK) == 0.0
