"""What Serve needs to know of each pool: how many replicas, on which resources, how they end."""

from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import Field, field_validator, model_validator

from cluster.config.autoscaling import PoolAutoscaling
from workers.core.config import DrafterConfig, ModelConfig, VerifierConfig
from workers.core.errors import ConfigurationError
from workers.core.settings import Settings
from workers.core.shards import check_size, sizes_in_folder

__all__ = ["ActorOptions", "DrafterPool", "Pool", "VerifierPool"]

Amount = Annotated[float, Field(gt=0.0, le=2.0**53)]  # Ray counts in floats

RESERVED = ("CPU", "GPU", "memory", "object_store_memory")


class ActorOptions(Settings):
    """Resources of one replica, as Ray counts them (`ray_actor_options` of a Serve deployment).

    With `tensor_parallel_size` above 1: of each rank, in a bundle of its own.
    """

    num_cpus: float = Field(1.0, ge=0.0, le=4096.0, description="CPUs that Ray reserves; fractions are allowed")
    num_gpus: float = Field(0.0, ge=0.0, le=64.0, description="GPUs that Ray reserves; fractions are allowed")
    memory: int | None = Field(None, ge=2**20, le=2**53, description="Bytes that Ray reserves")
    resources: dict[str, Amount] = Field(default_factory=dict, description="Custom resources")
    label_selector: dict[str, str] = Field(default_factory=dict, description="Labels that the node must have")
    runtime_env: dict[str, Any] = Field(default_factory=dict, description="Environment of the replica's process")

    @field_validator("resources")
    @classmethod
    def _own_names(cls, value: dict[str, float]) -> dict[str, float]:
        taken = sorted(set(value) & set(RESERVED))
        if taken:
            raise ValueError(f"{taken[0]} has a setting of its own beside `resources`: num_cpus, num_gpus or memory")
        return value

    def for_serve(self) -> dict[str, Any]:
        """As `ray_actor_options`, without what is not set."""
        return {name: value for name, value in self.model_dump().items() if value not in (None, {})}

    def as_bundle(self) -> dict[str, float]:
        """As one bundle of a placement group."""
        named = {"CPU": self.num_cpus, "GPU": self.num_gpus, "memory": self.memory or 0, **self.resources}
        return {name: float(amount) for name, amount in named.items() if amount > 0}


class Pool(Settings):
    """Common to all pools."""

    num_replicas: int = Field(1, ge=1, le=10_000, description="Fixed; not together with autoscaling")
    autoscaling: PoolAutoscaling | None = Field(None, description="None = num_replicas, always")
    ray_actor_options: ActorOptions = ActorOptions()
    max_replicas_per_node: int | None = Field(None, ge=1, le=100, description="None = no limit")
    graceful_shutdown_timeout_s: float = Field(
        120.0, gt=0.0, le=86_400.0, description="A replica that is replaced may finish its requests for this long"
    )
    health_check_period_s: float = Field(2.0, gt=0.0, le=600.0, description="Between two questions of Serve's")
    health_check_timeout_s: float = Field(
        30.0, gt=0.0, le=3600.0, description="A question unanswered for this long; three in a row replace the replica"
    )

    @model_validator(mode="after")
    def _one_number(self) -> Self:
        if self.autoscaling is not None and "num_replicas" in self.model_fields_set:
            raise ValueError(
                "num_replicas and autoscaling exclude each other: remove num_replicas (autoscaling.initial_replicas "
                "says how many start first), or remove autoscaling"
            )
        return self

    def placement(self, tensor_parallel_size: int) -> dict[str, Any]:
        """Options of a Serve deployment: where its replicas go. All ranks of one share a node."""
        options = self.ray_actor_options.for_serve()
        if tensor_parallel_size == 1:
            return {"ray_actor_options": options}
        selector = options.pop("label_selector", None)
        bundles = [self.ray_actor_options.as_bundle()] * tensor_parallel_size
        group: dict[str, Any] = {"placement_group_bundles": bundles, "placement_group_strategy": "STRICT_PACK"}
        if selector:
            group["placement_group_bundle_label_selector"] = [selector]
        return {"ray_actor_options": options, **group}


class VerifierPool(Pool):
    """Replicas of the target model."""

    config: VerifierConfig

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        check_device(self.config.model, self.ray_actor_options)
        check_ranks(self.config.model, self)
        check_context_fits(self.config.model, self.config.kv_cache.num_blocks, self.config.kv_cache.block_size)
        limits = self.config.speculation
        if limits.max_nodes < limits.max_depth:
            raise ValueError(
                f"config.speculation: max_nodes ({limits.max_nodes}) must be at least max_depth ({limits.max_depth}): "
                "already a tree without branches has one node for each level"
            )
        if self.config.method != "none" and self.config.max_tokens_per_step <= limits.max_nodes:
            raise ValueError(
                f"config.max_tokens_per_step ({self.config.max_tokens_per_step}) must exceed speculation.max_nodes "
                f"({limits.max_nodes}): one step takes a whole tree and its root"
            )
        return self


class DrafterPool(Pool):
    """Replicas of the draft model."""

    config: DrafterConfig

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        check_device(self.config.model, self.ray_actor_options)
        check_ranks(self.config.model, self)
        check_context_fits(self.config.model, self.config.kv_cache.num_blocks, self.config.kv_cache.block_size)
        return self


def check_device(model: ModelConfig, options: ActorOptions) -> None:
    """A device that Ray does not reserve would be shared by accident; one that is not used would lie idle."""
    on_gpu = model.device != "cpu"
    if on_gpu and options.num_gpus == 0:
        raise ValueError(f"config.model.device {model.device} needs ray_actor_options.num_gpus above 0")
    if not on_gpu and options.num_gpus > 0:
        raise ValueError(
            f"ray_actor_options.num_gpus {options.num_gpus:g} reserves GPUs that config.model.device cpu does not use"
        )


def check_ranks(model: ModelConfig, pool: Pool) -> None:
    """What Ray, NCCL or the model would refuse of a tensor-parallel pool, in words and before anything starts."""
    size, options = model.tensor_parallel_size, pool.ray_actor_options
    if size == 1:
        return
    if pool.max_replicas_per_node is not None:
        raise ValueError(
            f"max_replicas_per_node cannot be set with config.model.tensor_parallel_size {size}: Ray places the ranks "
            "of a replica as one group; leave it out, and let the resources of the ranks limit the replicas of a node"
        )
    if not options.as_bundle():
        raise ValueError(
            f"ray_actor_options reserve nothing, and with config.model.tensor_parallel_size {size} each rank needs a "
            "bundle of its own: set num_cpus, num_gpus or resources above 0"
        )
    if options.num_gpus not in (0, 1):
        raise ValueError(
            f"ray_actor_options.num_gpus is {options.num_gpus:g} for each rank of a group of {size}; every rank runs "
            "on one whole GPU: set it to 1"
        )
    sizes = sizes_in_folder(Path(model.tokenizer_model))
    try:
        if sizes is not None:
            check_size(size, sizes, model.model)
    except ConfigurationError as error:  # pydantic wants another
        raise ValueError(f"config.model: {error}") from None


def check_context_fits(model: ModelConfig, num_blocks: int, block_size: int) -> None:
    """With `max_context_length` unset, the engine checks at start, when it knows the model."""
    if model.max_context_length is not None and num_blocks * block_size < model.max_context_length:
        needed = -(-model.max_context_length // block_size)
        raise ValueError(
            f"config.kv_cache: {num_blocks} blocks of {block_size} tokens hold less than one context of "
            f"{model.max_context_length} tokens; num_blocks must be at least {needed}"
        )
