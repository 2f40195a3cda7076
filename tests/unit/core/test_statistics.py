"""Counters of a request."""

from workers.core.statistics import GenerationStats


def test_steps_add_up() -> None:
    stats = GenerationStats()
    stats.record_step(tree_depth=0, tree_nodes=0, accepted=0, emitted=1)
    stats.record_step(tree_depth=3, tree_nodes=7, accepted=2, emitted=3)
    stats.record_step(tree_depth=1, tree_nodes=2, accepted=0, emitted=1)
    assert (stats.verify_steps, stats.plain_steps, stats.output_tokens) == (3, 1, 5)
    assert (stats.drafted_tokens, stats.accepted_tokens) == (9, 2)
    assert stats.drafted_per_depth == [2, 1, 1]
    assert stats.accepted_per_depth == [1, 1, 0]
    assert stats.acceptance_length == 5 / 3
    assert stats.acceptance_rate == 2 / 9


def test_nothing_happened_is_not_an_error() -> None:
    assert (GenerationStats().acceptance_length, GenerationStats().acceptance_rate) == (0.0, 0.0)
