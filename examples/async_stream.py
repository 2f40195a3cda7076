"""Stream several prompts at once; each line shows which answer grew.

usage: python examples/async_stream.py [--target HOST:PORT] [PROMPT ...]
"""

import argparse
import asyncio
from collections.abc import Sequence

import outrider


async def follow(client: outrider.AsyncClient, number: int, prompt: str) -> outrider.Generation:
    async with client.stream(prompt, max_tokens=32) as stream:
        async for delta in stream:
            print(f"[{number}] {delta.text!r}")
        return await stream.result()


async def run(target: str, prompts: Sequence[str]) -> None:
    async with outrider.AsyncClient(target) as client:
        generations = await asyncio.gather(*(follow(client, i, prompt) for i, prompt in enumerate(prompts)))
    for prompt, generation in zip(prompts, generations, strict=True):
        print(f"{prompt}{generation.text}")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Stream several prompts at once.")
    parser.add_argument("prompts", nargs="*", default=["One day", "In the city", "The sea"])
    parser.add_argument("--target", default="localhost:9000", help="address of the server")
    options = parser.parse_args(arguments)
    asyncio.run(run(options.target, options.prompts))


if __name__ == "__main__":
    main()
