"""What `outrider probe` prints of its findings."""

import io

from rich.console import Console

from cluster.cli.probe import show
from workers.probe.findings import Acceptance, Cost, DraftCost, Findings, Speed, Tree
from workers.probe.verdict import judge

NAME = "[red]draft[/nope]"  # would be markup, and broken
TREE = Tree(2, 1, 2)
FINDINGS = Findings(
    "[target]",
    3,
    (Acceptance(NAME, TREE, "coupled", 0.0, 200, 100, 200, (100, 100), (60, 40)),),
    Cost({1: 10.0, 3: 14.0, 9: 20.0}, (DraftCost(NAME, TREE, 1, 6.0),)),
    (Speed(NAME, TREE, 0.0, 1, (100.0, 50.0), (120.0, 60.0), (118.0, 59.0), 1.25),),
)


def test_names_are_shown_as_they_are() -> None:
    text = io.StringIO()
    show(Console(file=text, width=200), FINDINGS, judge(FINDINGS))
    assert text.getvalue().count(NAME) == 3
    assert "[target]: acceptance over 3 prompts" in text.getvalue()
    assert "1.20x" in text.getvalue()
    assert "1.18x" in text.getvalue()
