"""`make demo`: three prompts through a gateway, a verifier and a drafter on a local Ray cluster.

Exit status 0 only if every answer is the same with and without speculation.
"""

import argparse
import sys
from pathlib import Path

from rich.console import Console

from cluster.demo.run import demo


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, default=Path("models/SmolLM2-135M-Instruct"), help="folder of the model")
    parser.add_argument(
        "--draft-layers", type=_layers, default=None, help="layers of the target that the draft keeps, as 0,1,2,29"
    )
    parser.add_argument("--tiny", action="store_true", help="use the tiny built-in model; needs no download")
    arguments = parser.parse_args()
    return demo(Console(), arguments.model, arguments.draft_layers, tiny=arguments.tiny)


def _layers(text: str) -> list[int]:
    try:
        return [int(one) for one in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"layers are numbers with commas between, as 0,1,2,29; got {text!r}") from None


if __name__ == "__main__":
    sys.exit(main())
