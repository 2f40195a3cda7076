"""How long an answer takes, from steps and from answers that ended."""

import pytest

from workers.scheduling.pace import MARGIN, PaceMeter, Work

WORK = Work(prompt_tokens=100, max_output_tokens=50)


def measured(step_s: float, *, tokens: float = 1.0, output_tokens: int = 50, steps: int = 200) -> PaceMeter:
    meter = PaceMeter()
    meter.first_token(100, 0.2)
    meter.ended(WORK, output_tokens)
    for _ in range(steps):
        meter.step(step_s, tokens)
    return meter


def test_before_the_first_answer_nothing_is_refused() -> None:
    meter = PaceMeter()
    assert meter.expected_s(WORK) == meter.best_s(WORK) == meter.rest_s(WORK, 3) == 0.0
    meter.step(5.0, 1.0)
    assert meter.expected_s(WORK) == 0.0, "one step says nothing of a whole answer"


def test_prompt_and_output_count_at_their_own_pace() -> None:
    meter = measured(0.01)
    assert meter.best_s(WORK) == pytest.approx(0.2 + 50 * 0.01)
    assert meter.best_s(Work(0, 10)) == pytest.approx(0.1)
    assert meter.expected_s(WORK) == pytest.approx(MARGIN * 0.7)


def test_accepted_drafts_make_it_faster() -> None:
    assert measured(0.01, tokens=2.5).best_s(Work(0, 50)) == pytest.approx(0.2)


def test_answers_that_end_early_shorten_what_is_expected() -> None:
    meter = measured(0.01, output_tokens=10)
    assert meter.best_s(WORK) == pytest.approx(0.2 + 10 * 0.01)
    assert meter.rest_s(WORK, 4) == pytest.approx(6 * 0.01)
    assert meter.rest_s(WORK, 40) == 0.0, "it may end any moment"


def test_a_server_that_gets_slow_is_noticed_although_no_answer_ends() -> None:
    meter = measured(0.01)
    for _ in range(60):
        meter.step(0.1, 1.0)
    assert meter.rest_s(WORK, 0) > 50 * 0.09
    assert meter.best_s(WORK) < 0.8, "what it can do at its best is remembered"


def test_the_best_pace_fades() -> None:
    meter = measured(0.01)
    for _ in range(10_000):
        meter.step(0.05, 1.0)
    assert meter.best_s(WORK) == pytest.approx(0.2 + 50 * 0.05, rel=0.01)


@pytest.mark.parametrize(("seconds", "tokens"), [(1.0, 0.0), (-1.0, 1.0)])
def test_steps_without_tokens_or_time_say_nothing(seconds: float, tokens: float) -> None:
    meter = measured(0.01)
    meter.step(seconds, tokens)
    assert meter.best_s(WORK) == pytest.approx(0.7)
