"""Several of our applications in one cluster. `outrider serve` takes a file with one; Serve takes any number."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from cluster.config.loader import IMPORT_PATH, load_config

if TYPE_CHECKING:
    from ray.serve.schema import ServeDeploySchema  # Ray reads how it authenticates when it is imported

__all__ = ["document", "load_several"]

SERVICER = "outrider.v1.generation_pb2_grpc.add_GenerationServiceServicer_to_server"


def document(applications: Sequence[Mapping[str, Any]], grpc_port: int, http_port: int) -> dict[str, Any]:
    """A Serve file on the loopback interface."""
    return {
        "proxy_location": "HeadOnly",
        "http_options": {"host": "127.0.0.1", "port": http_port},
        "grpc_options": {"port": grpc_port, "grpc_servicer_functions": [SERVICER]},
        "applications": list(applications),
    }


def load_several(content: Mapping[str, Any], folder: Path, import_path: str = IMPORT_PATH) -> "ServeDeploySchema":
    """Check each application of a Serve file as a file of its own, written to `folder`, and deploy it from
    `import_path`. Raises `ConfigurationError`."""
    from ray.serve.schema import ServeDeploySchema

    applications = content["applications"]
    for one in applications:
        path = folder / f"{one['name']}-serve.yaml"
        path.write_text(yaml.safe_dump({**content, "applications": [one]}))
        load_config(path)
    deployed = [{**one, "import_path": import_path} for one in applications]
    return ServeDeploySchema.model_validate({**content, "applications": deployed})
