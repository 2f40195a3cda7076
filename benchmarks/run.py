"""`make bench`: every measurement of this repository on the demonstration's model.

python -m benchmarks.run [decode|steps|memory|roundtrip|off_state|drafting|tensor_parallel …]
"""

import argparse
import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.decode import measure_decoding
from benchmarks.drafting import measure_drafting
from benchmarks.memory import measure_memory
from benchmarks.off_state import measure_off_state
from benchmarks.provenance import save
from benchmarks.roundtrip import measure_roundtrip
from benchmarks.steps import measure_steps
from benchmarks.tensor_parallel import measure_tensor_parallel
from cluster.demo.model import fetch_demo_model
from workers.core.config import ModelConfig
from workers.models.loader import load_model

SEED = 0
MODEL = Path("models/SmolLM2-135M-Instruct")
DRAFT = Path("checkpoints/smollm2-draft")


def main() -> None:
    """Run the named measurements, or all of them, and print what was written where."""
    measurements: dict[str, Callable[[], dict[str, Any]]] = {
        "decode": lambda: measure_decoding(MODEL, load_model(ModelConfig(model=str(MODEL)))),
        "steps": lambda: measure_steps(load_model(ModelConfig(model=str(MODEL)))),
        "memory": lambda: measure_memory(SEED),
        "roundtrip": measure_roundtrip,
        "drafting": lambda: measure_drafting(load_model(ModelConfig(model=str(DRAFT), base=str(MODEL)))),
        "tensor_parallel": lambda: measure_tensor_parallel(MODEL),
        "off_state": lambda: measure_off_state(load_model(ModelConfig(model=str(MODEL)))),
    }
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("names", nargs="*", choices=[*measurements, []], help="default: all")
    names = parser.parse_args().names or list(measurements)
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    if {"decode", "steps", "drafting", "off_state", "tensor_parallel"} & set(names):
        fetch_demo_model(MODEL, logging.info)
    for name in names:
        result = measurements[name]()
        path = save(name, result, SEED)
        print(f"{name}: {json.dumps(result, indent=2)}\n-> {path}")


if __name__ == "__main__":
    main()
