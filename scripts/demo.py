"""`make demo`: three prompts through a gateway, a verifier and a drafter on a local Ray cluster.

Exit status 0 only if every answer is the same with and without speculation.
"""

import argparse
import sys
from pathlib import Path

from rich.console import Console

from cluster.demo.run import demo

ROOT = Path(__file__).parents[1]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, default=Path("models/SmolLM2-135M-Instruct"), help="folder of the model")
    parser.add_argument(
        "--draft", type=Path, default=ROOT / "checkpoints/smollm2-draft", help="folder of a draft made for the model"
    )
    parser.add_argument("--tiny", action="store_true", help="use the tiny built-in model; needs no download")
    arguments = parser.parse_args()
    return demo(Console(), arguments.model, arguments.draft, tiny=arguments.tiny)


if __name__ == "__main__":
    sys.exit(main())
