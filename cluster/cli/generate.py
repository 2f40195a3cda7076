"""`outrider generate`: one prompt, streamed to the terminal, with its statistics."""

import json
from dataclasses import asdict
from typing import Annotated

import typer
from outrider import ChatMessage, Client, Generation, GenerationStats, Speculation
from outrider.options import RequestOptions
from rich.console import Console

from cluster.cli.connection import ApiKeyFile, CaFile, Tls, connect
from cluster.cli.output import BAD_INPUT, err_console, fail, friendly_errors, out_console
from cluster.cli.text import check_text, read_standard_input
from workers.core.shown import shown

__all__ = ["DEFAULT_TARGET", "generate", "stats_line"]

DEFAULT_TARGET = "127.0.0.1:9000"


def generate(
    prompt: Annotated[str, typer.Argument(help="The prompt; - reads it from standard input")],
    target: Annotated[str, typer.Option(help="host:port of the server")] = DEFAULT_TARGET,
    chat: Annotated[
        bool, typer.Option("--chat/--text", help="Apply the chat template, or take the text as it is")
    ] = True,
    system: Annotated[str | None, typer.Option(help="System message (with --chat)")] = None,
    max_tokens: Annotated[int | None, typer.Option(help="Most tokens to generate")] = None,
    min_tokens: Annotated[int | None, typer.Option(help="No end before this many tokens")] = None,
    temperature: Annotated[float | None, typer.Option(help="0 = greedy")] = None,
    top_k: Annotated[int | None, typer.Option(help="0 = all tokens")] = None,
    top_p: Annotated[float | None, typer.Option()] = None,
    min_p: Annotated[float | None, typer.Option()] = None,
    repetition_penalty: Annotated[float | None, typer.Option()] = None,
    presence_penalty: Annotated[float | None, typer.Option()] = None,
    frequency_penalty: Annotated[float | None, typer.Option()] = None,
    logit_bias: Annotated[list[str] | None, typer.Option(help="TOKEN_ID=BIAS; may be repeated")] = None,
    stop: Annotated[list[str] | None, typer.Option(help="Stop before this text; may be repeated")] = None,
    stop_token_id: Annotated[list[int] | None, typer.Option(help="Stop after this token; may be repeated")] = None,
    seed: Annotated[int | None, typer.Option(help="Same seed, same text")] = None,
    n: Annotated[int | None, typer.Option(help="Independent answers")] = None,
    ignore_eos: Annotated[bool, typer.Option("--ignore-eos", help="Go on after the end-of-sequence token")] = False,
    speculation: Annotated[str | None, typer.Option(help="off, auto or on")] = None,
    depth: Annotated[int | None, typer.Option(help="Deepest node of a token tree")] = None,
    width: Annotated[int | None, typer.Option(help="Most children of a node")] = None,
    nodes: Annotated[int | None, typer.Option(help="Most nodes of a tree")] = None,
    rule: Annotated[str | None, typer.Option(help="coupled, rejection or typical")] = None,
    cache_salt: Annotated[str, typer.Option(help="Share cached K/V only with requests of this salt")] = "",
    session_id: Annotated[str, typer.Option(help="Requests with the same one prefer the same replicas")] = "",
    deadline: Annotated[float | None, typer.Option(help="Seconds that the server may spend")] = None,
    priority: Annotated[int, typer.Option(help="-10 (served first) to 10 (served last)")] = 0,
    api_key_file: ApiKeyFile = None,
    tls: Tls = False,
    ca: CaFile = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object at the end")] = False,
) -> None:
    """Generate text. It streams as it is committed; statistics go to standard error."""
    with friendly_errors():
        check_text("--session-id", session_id)
        prompt = readable(prompt, system, stop or [], cache_salt)
        options: RequestOptions = {
            "max_tokens": max_tokens,
            "min_tokens": min_tokens,
            "temperature": temperature,
            "top_k": top_k,
            "top_p": top_p,
            "min_p": min_p,
            "repetition_penalty": repetition_penalty,
            "presence_penalty": presence_penalty,
            "frequency_penalty": frequency_penalty,
            "logit_bias": parse_bias(logit_bias or []),
            "stop": stop or None,
            "stop_token_ids": stop_token_id or None,
            "seed": seed,
            "n": n,
            "ignore_eos": ignore_eos or None,
            "speculation": parse_speculation(speculation, depth, width, nodes, rule),
            "cache_salt": cache_salt,
            "session_id": session_id,
            "deadline": deadline,
            "priority": priority,
        }
        if chat:
            messages = [] if system is None else [ChatMessage("system", system)]
            options["messages"] = [*messages, ChatMessage("user", prompt)]
        elif system is not None:
            raise fail("--system needs --chat", BAD_INPUT)
        with connect(target, api_key_file, tls=tls, ca=ca) as client:
            run(client, None if chat else prompt, options, as_json=as_json)


def readable(prompt: str, system: str | None, stop: list[str], cache_salt: str) -> str:
    """Refuse arguments that are not text; returns the prompt, read from standard input where it is "-"."""
    check_text("prompt", prompt)
    check_text("--system", system)
    check_text("--cache-salt", cache_salt)
    for one in stop:
        check_text("--stop", one)
    return read_standard_input() if prompt == "-" else prompt


def run(client: Client, prompt: str | None, options: RequestOptions, *, as_json: bool) -> None:
    """Stream the answer; several answers (n > 1) are printed one after another at the end."""
    live = not as_json and (options.get("n") or 1) == 1
    out = out_console()
    with client.stream(prompt, **options) as stream:
        for delta in stream:
            if live:
                out.print(delta.text, end="", markup=False, soft_wrap=True)
        result = stream.result()
    if as_json:
        typer.echo(json.dumps(as_dict(result), ensure_ascii=False, indent=2))
        return
    if live:
        out.print()
    else:
        for output in result.outputs:
            out.rule(f"answer {output.index}")
            out.print(output.text, markup=False, soft_wrap=True)
    print_summary(err_console(), result)


def print_summary(console: Console, result: Generation) -> None:
    console.print(
        f"[dim]{stats_line(result.stats)}, seed {result.seed}, finish: {result.finish_reason}[/]", soft_wrap=True
    )


def stats_line(stats: GenerationStats) -> str:
    """What a reader wants to know at the end of an answer."""
    return (
        f"{stats.output_tokens} tokens in {stats.verify_steps} steps, acceptance length {stats.acceptance_length:.2f}, "
        f"{stats.decode_tokens_per_second:.1f} tokens/s, first token after {stats.time_to_first_token_ms:.0f} ms"
    )


def as_dict(result: Generation) -> dict[str, object]:
    """JSON form of a generation, ratios included."""
    stats = result.stats
    ratios = {
        "acceptance_length": stats.acceptance_length,
        "acceptance_rate": stats.acceptance_rate,
        "tokens_per_second": stats.tokens_per_second,
        "decode_tokens_per_second": stats.decode_tokens_per_second,
    }
    return asdict(result) | {"text": result.text, "stats": asdict(stats) | ratios}


def parse_bias(pairs: list[str]) -> dict[int, float] | None:
    """`["12=-3.5"]` -> `{12: -3.5}`."""
    biases = {}
    for pair in pairs:
        token, _, bias = pair.partition("=")
        try:
            biases[int(token)] = float(bias)
        except ValueError:
            raise fail(f"--logit-bias wants TOKEN_ID=BIAS, say 198=-5; got {shown(pair)}", BAD_INPUT) from None
    return biases or None


def parse_speculation(
    mode: str | None, depth: int | None, width: int | None, nodes: int | None, rule: str | None
) -> Speculation | None:
    """None = the server's default. Limits imply `on`."""
    limits = {"depth": depth, "width": width, "nodes": nodes}
    limited = any(value is not None for value in limits.values())
    if mode is None:
        mode = "on" if limited else "auto"
    if mode not in ("off", "auto", "on"):
        raise fail(f"--speculation is off, auto or on; got {shown(mode)}", BAD_INPUT)
    if limited and mode != "on":
        raise fail(f"--depth, --width and --nodes need --speculation on; got {mode}", BAD_INPUT)
    if mode == "on":
        return Speculation.on(depth=depth, width=width, nodes=nodes, rule=rule)
    if mode == "auto":
        return Speculation.auto(rule=rule)
    if rule is not None:
        raise fail("--rule needs --speculation auto or on", BAD_INPUT)
    return Speculation.off()
