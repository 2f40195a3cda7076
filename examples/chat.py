"""Talk to the model; an empty line ends the conversation.

usage: python examples/chat.py [--target HOST:PORT]
"""

import argparse
from collections.abc import Callable, Sequence

import outrider


def main(arguments: Sequence[str] | None = None, read: Callable[[str], str] = input) -> None:
    parser = argparse.ArgumentParser(description="Talk to the model; an empty line ends the conversation.")
    parser.add_argument("--target", default="localhost:9000", help="address of the server")
    options = parser.parse_args(arguments)

    messages = [outrider.ChatMessage("system", "You are a helpful assistant.")]
    with outrider.Client(options.target) as client:
        while line := read("> ").strip():
            messages.append(outrider.ChatMessage("user", line))
            with client.stream(messages=messages, max_tokens=256) as stream:
                for delta in stream:
                    print(delta.text, end="", flush=True)
                print()
                messages.append(outrider.ChatMessage("assistant", stream.result().text))


if __name__ == "__main__":
    main()
