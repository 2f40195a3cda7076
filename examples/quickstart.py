"""Generate text and print it while it grows.

usage: python examples/quickstart.py [--target HOST:PORT] [PROMPT]
"""

import argparse
from collections.abc import Sequence

import outrider


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Generate text and print it while it grows.")
    parser.add_argument("prompt", nargs="?", default="Once upon a time")
    parser.add_argument("--target", default="localhost:9000", help="address of the server")
    options = parser.parse_args(arguments)

    with outrider.Client(options.target) as client, client.stream(options.prompt, max_tokens=64) as stream:
        for delta in stream:
            print(delta.text, end="", flush=True)
        stats = stream.result().stats
    print(f"\n{stats.output_tokens} tokens, {stats.acceptance_length:.2f} per verify step")


if __name__ == "__main__":
    main()
