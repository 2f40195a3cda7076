"""The demonstration's configuration, as the YAML file that `outrider serve` would take."""

import os
from pathlib import Path
from typing import Any

import yaml

from workers.text.source import DRAFT_DESCRIPTION

__all__ = ["demo_document", "write_document"]

SERVICER = "outrider.v1.generation_pb2_grpc.add_GenerationServiceServicer_to_server"
MAX_THREADS = 4  # of each engine, even on a large machine


def demo_document(target: Path, draft: Path, *, grpc_port: int, http_port: int) -> dict[str, Any]:
    """`draft`: a draft checkpoint of the model in `target`, or a model folder of its own."""
    model: dict[str, Any] = {"num_threads": min(MAX_THREADS, os.cpu_count() or 1), "max_context_length": 512}
    engine: dict[str, Any] = {"kv_cache": {"block_size": 16, "num_blocks": 256}}
    draft_model = model | {"model": str(draft)}
    if (draft / DRAFT_DESCRIPTION).is_file():
        draft_model["base"] = str(target)
    pool = {"ray_actor_options": {"num_cpus": 0.3}, "graceful_shutdown_timeout_s": 10.0}
    speculation = {"max_depth": 3, "max_width": 2, "max_nodes": 4}
    args = {
        "model_name": target.name,
        "target": pool | {"config": engine | {"model": model | {"model": str(target)}, "speculation": speculation}},
        "draft": pool | {"config": engine | {"model": draft_model}},
        "gateway": pool,
    }
    return {
        "proxy_location": "HeadOnly",
        "http_options": {"host": "127.0.0.1", "port": http_port},
        "grpc_options": {"port": grpc_port, "grpc_servicer_functions": [SERVICER], "enable_reflection": False},
        "applications": [
            {"name": "outrider", "route_prefix": "/", "import_path": "cluster.app:build", "args": args},
        ],
    }


def write_document(path: Path, document: dict[str, Any]) -> Path:
    path.write_text(yaml.safe_dump(document, sort_keys=False), encoding="utf-8")
    return path
