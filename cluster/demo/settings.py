"""The demonstration's configuration, as the YAML file that `outrider serve` would take."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

__all__ = ["DRAFT_LAYERS", "demo_document", "write_document"]

SERVICER = "outrider.v1.generation_pb2_grpc.add_GenerationServiceServicer_to_server"
# All but layers 16 to 18, which the model misses least. Chosen on three of its own greedy answers (190 tokens, two of
# them to prompts of the demonstration, so the figures flatter): the first guess is right 70 % of the time, one of the
# first four 95 %. Without training nothing much smaller agrees with it: the first 16 and last 8 layers reach 38 % and
# 63 % on the same answers, the first three and the last one next to nothing.
DRAFT_LAYERS = (*range(16), *range(19, 30))


def demo_document(
    target: Path,
    *,
    draft: Path | None = None,
    draft_layers: Sequence[int] | None = None,
    grpc_port: int,
    http_port: int,
) -> dict[str, Any]:
    """Target in `target`; the draft is a folder of its own, or some of the target's layers."""
    model: dict[str, Any] = {"num_threads": 1, "max_context_length": 512}  # one core each: they work side by side
    engine: dict[str, Any] = {"kv_cache": {"block_size": 16, "num_blocks": 256}}
    draft_model = model | {"model": str(draft or target)}
    if draft_layers is not None:
        draft_model["layers"] = list(draft_layers)
    pool = {"ray_actor_options": {"num_cpus": 0.3}, "graceful_shutdown_timeout_s": 10.0}
    speculation = {"max_depth": 2, "max_width": 2, "max_nodes": 6}
    args = {
        "model_name": target.name,
        "target": pool | {"config": engine | {"model": model | {"model": str(target)}, "speculation": speculation}},
        "draft": pool | {"config": engine | {"model": draft_model}},
        "gateway": pool,
    }
    return {
        "proxy_location": "HeadOnly",
        "http_options": {"host": "127.0.0.1", "port": http_port},
        "grpc_options": {"port": grpc_port, "grpc_servicer_functions": [SERVICER]},
        "applications": [
            {"name": "outrider", "route_prefix": "/", "import_path": "cluster.app:build", "args": args},
        ],
    }


def write_document(path: Path, document: dict[str, Any]) -> Path:
    path.write_text(yaml.safe_dump(document, sort_keys=False), encoding="utf-8")
    return path
