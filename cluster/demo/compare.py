"""Each prompt once plainly and once with speculation, side by side in one run."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from outrider import Client, Generation, Speculation
from rich import box
from rich.console import Console
from rich.table import Table

__all__ = ["Comparison", "DemoPrompt", "PROMPTS", "compare", "comparison_table", "warm_up"]


@dataclass(frozen=True)
class DemoPrompt:
    text: str
    max_tokens: int
    temperature: float = 0.0
    seed: int = 0


PROMPTS = (
    DemoPrompt("Explain in a few sentences why the sky is blue.", 80),
    DemoPrompt("List the planets of the solar system in order, each with one short fact.", 96),
    DemoPrompt("Write the opening of a story about a lighthouse keeper and a storm.", 80, temperature=0.8, seed=2026),
)


@dataclass(frozen=True)
class Comparison:
    prompt: DemoPrompt
    plain: Generation
    speculative: Generation

    @property
    def slower(self) -> bool:
        """Whether speculation has cost time."""
        return self.speculative.stats.decode_tokens_per_second < self.plain.stats.decode_tokens_per_second

    @property
    def equal(self) -> bool:
        """Token for token, and the text as well."""
        return (self.plain.token_ids, self.plain.text) == (self.speculative.token_ids, self.speculative.text)


def warm_up(client: Client) -> None:
    """The first steps of a process are slow (memory is touched for the first time); they would distort the ratios."""
    for speculation in (Speculation.off(), Speculation.on()):
        client.generate("Hello", max_tokens=8, temperature=0.0, speculation=speculation, cache_salt="warm-up")


def compare(client: Client, prompt: DemoPrompt, on_text: Callable[[str, str], None]) -> Comparison:
    """Run the prompt twice; `on_text(label, text)` gets the text as it arrives.

    Each run has a cache salt of its own: the second must not profit from the K/V of the first.
    """
    results = {}
    for label, speculation in (("plain", Speculation.off()), ("speculative", Speculation.on())):
        with client.stream(
            messages=[{"role": "user", "content": prompt.text}],
            max_tokens=prompt.max_tokens,
            temperature=prompt.temperature,
            seed=prompt.seed,
            speculation=speculation,
            cache_salt=f"demo-{label}",
        ) as stream:
            for delta in stream:
                on_text(label, delta.text)
            results[label] = stream.result()
    return Comparison(prompt, results["plain"], results["speculative"])


def comparison_table(comparisons: Sequence[Comparison]) -> Table:
    """Two lines for each prompt: plain and speculative."""
    title = "Speculation against plain decoding (same run, same weights)"
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, collapse_padding=True)
    table.add_column("prompt")
    table.add_column("decoding")
    for name in ("tokens", "verify\nsteps", "acceptance\nlength", "tokens/s", "TTFT\nms", "equal\ntexts"):
        table.add_column(name, justify="right", no_wrap=True)
    for number, one in enumerate(comparisons, 1):
        equal = "[green]yes[/]" if one.equal else "[bold red]NO[/]"
        table.add_row(f"{number}, T={one.prompt.temperature:g}", "plain", *_numbers(one.plain), "")
        table.add_row("", "speculative", *_numbers(one.speculative), equal, end_section=True)
    return table


def _numbers(result: Generation) -> tuple[str, ...]:
    stats = result.stats
    return (
        str(stats.output_tokens),
        str(stats.verify_steps),
        f"{stats.acceptance_length:.2f}",
        f"{stats.decode_tokens_per_second:.1f}",
        f"{stats.time_to_first_token_ms:.0f}",
    )


def show_difference(console: Console, one: Comparison) -> None:
    """Where two token sequences part."""
    pairs = zip(one.plain.token_ids, one.speculative.token_ids, strict=False)
    first = next((i for i, (a, b) in enumerate(pairs) if a != b), None)
    where = f"token {first}" if first is not None else "length"
    console.print(f"[red]{one.prompt.text}: the answers differ from {where} on[/]")
