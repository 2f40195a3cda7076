"""vLLM's `--speculative-config` and our settings: from one to the other, and what gets lost on the way.

A conversion is settings plus one line for each thing that the other side cannot express; nothing is dropped silently.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cluster.config.explain import unknown_key, validated
from workers.core.config import DrafterConfig, ModelConfig, NgramConfig, SpeculationConfig, VerifierConfig
from workers.core.errors import ConfigurationError
from workers.core.sampling_params import VerificationRule
from workers.core.shown import printable, shown

__all__ = ["Conversion", "from_vllm", "target_settings", "to_vllm"]

Json = dict[str, Any]

METHODS = ("draft_model", "medusa", "ngram")  # that both have
VLLM_NGRAM = 5  # its prompt_lookup_min and _max when neither is given

# Keys of vLLM 0.32 that have no counterpart, with the value that changes nothing there and the reason.
_ONLY_VLLM: dict[str, tuple[Any, str]] = {
    "enforce_eager": (None, "there are no captured graphs here"),
    "quantization": (None, "a draft model is loaded as its folder says (GGUF files are)"),
    "moe_backend": (None, "transformers chooses it"),
    "attention_backend": (None, "there is one"),
    "kv_cache_dtype": (None, "K/V has the model's own type"),
    "revision": (None, "download that revision and name its folder"),
    "code_revision": (None, "code from a hub is never run"),
    "draft_load_config": (None, "models are loaded in one way"),
    "index_share_for_mtp_iteration": (None, "there is no such method"),
    "disable_padded_drafter_batch": (False, "batches are ragged always"),
    "disable_eagle_block_drop": (False, "there is no such method"),
    "use_local_argmax_reduction": (False, "drafters look at whole rows"),
    "use_heterogeneous_vocab": (False, "target and draft must share their tokenizer"),
    "parallel_drafting": (False, "drafters grow a tree level by level"),
    "num_speculative_tokens_per_batch_size": (None, "how much is speculated is decided anew in every step"),
    "synthetic_acceptance_rates": (None, "nothing is accepted that the target would not say"),
    "synthetic_acceptance_length": (None, "nothing is accepted that the target would not say"),
    "enable_adaptive_verification": (False, "how much is speculated is decided anew in every step"),
    "dspark_draft_topk": (None, "there is no such method"),
    "suffix_decoding_max_tree_depth": (24, "there is no such method"),
    "suffix_decoding_max_cached_requests": (10000, "there is no such method"),
    "suffix_decoding_max_spec_factor": (1.0, "there is no such method"),
    "suffix_decoding_min_token_prob": (0.1, "there is no such method"),
}
_BOTH = (
    "method",
    "model",
    "num_speculative_tokens",
    "draft_tensor_parallel_size",
    "max_model_len",
    "prompt_lookup_min",
    "prompt_lookup_max",
    "rejection_sample_method",
    "draft_sample_method",
)


@dataclass
class Conversion:
    """What was converted, and what was not, in words."""

    settings: Json
    lost: list[str] = field(default_factory=list)


def from_vllm(given: Mapping[str, Any]) -> Conversion:
    """`target` and `draft` of an application's `args`, which our settings accept.

    Raises `ConfigurationError` for methods that are not here and values that are not allowed.
    """
    lost: list[str] = []
    for key, value in given.items():
        if key in _ONLY_VLLM and value != _ONLY_VLLM[key][0]:
            lost.append(f"{key}: {_ONLY_VLLM[key][1]}")
        elif key not in _ONLY_VLLM and key not in _BOTH:
            raise ConfigurationError(f"{printable(str(key))}: {unknown_key(str(key), (*_BOTH, *_ONLY_VLLM))}")
    method = _method(given, lost)
    target: Json = {"method": method, **_limits(given, method, lost)}
    result: Json = {"target": {"config": target}}
    if method == "ngram":
        target["ngram"] = _ngram(given)
    elif not given.get("model"):
        raise ConfigurationError(f"model: method {method} needs one")
    elif method == "medusa":
        target["medusa"] = {"model": given["model"]}
    else:
        result["draft"] = {"config": {"model": _draft_model(given)}}
        validated(DrafterConfig, result["draft"]["config"], "draft.config")
    target_settings(target)
    return Conversion(result, lost)


def target_settings(values: Mapping[str, Any]) -> VerifierConfig:
    """`target.config` that may say nothing of the target itself, which is no part of a speculative config."""
    return validated(VerifierConfig, {"model": {"model": "-"}, **values}, "target.config")


def to_vllm(target: VerifierConfig, draft: DrafterConfig | None) -> Conversion:
    """The JSON of `--speculative-config`; raises `ConfigurationError` for methods that vLLM does not have."""
    if target.method not in METHODS:
        raise ConfigurationError(f"method {target.method} has no counterpart in vLLM; these have: {', '.join(METHODS)}")
    limits = target.speculation
    result: Json = {"method": target.method, "num_speculative_tokens": limits.max_depth}
    lost = [f"speculation.{name}: vLLM verifies one chain of tokens" for name in ("max_width", "max_nodes")]
    if limits.default_rule is VerificationRule.REJECTION:
        result |= {"rejection_sample_method": "standard", "draft_sample_method": "probabilistic"}
    else:
        lost.append(f"speculation.default_rule {limits.default_rule.value}: vLLM has its own rejection sampling")
    if target.ngram.combine:
        lost.append("ngram.combine: vLLM takes one method at a time")
    lost += _not_default(limits, "speculation", ("max_depth", "max_width", "max_nodes", "default_rule"))
    if target.method == "ngram":
        result |= target.ngram.model_dump(exclude={"combine"})
    elif target.method == "medusa" and target.medusa is not None:
        result["model"] = target.medusa.model
        lost.append("the tree that is stored with the heads: vLLM takes the best token of each head")
    elif draft is None:
        raise ConfigurationError("draft: method draft_model needs the settings of the draft pool")
    else:
        model = draft.model
        result |= {"model": model.model, "draft_tensor_parallel_size": model.tensor_parallel_size}
        if model.max_context_length is not None:
            result["max_model_len"] = model.max_context_length
        kept = ("model", "tensor_parallel_size", "max_context_length")
        lost += _not_default(model, "draft.config.model", kept) + _not_default(draft, "draft.config", ("model",))
    return Conversion(result, lost)


def _method(given: Mapping[str, Any], lost: list[str]) -> str:
    method = given.get("method")
    if method is None:
        guessed = "ngram" if given.get("model") in (None, "ngram", "[ngram]") else "draft_model"
        lost.append(f"method: not given; vLLM would look into the model, {guessed} is assumed here")
        return guessed
    if method == "ngram_gpu":
        lost.append("method ngram_gpu: lookup runs on the CPU")
        return "ngram"
    if method not in METHODS:
        raise ConfigurationError(f"method {shown(method)} has no counterpart; these have: {', '.join(METHODS)}")
    return str(method)


def _limits(given: Mapping[str, Any], method: str, lost: list[str]) -> Json:
    speculation: Json = {}
    depth = given.get("num_speculative_tokens")
    if depth is not None:
        highest = 64
        if isinstance(depth, bool) or not isinstance(depth, int) or not 1 <= depth <= highest:
            raise ConfigurationError(f"num_speculative_tokens: {shown(depth)} is not between 1 and {highest}")
        speculation |= {"max_depth": depth, "max_nodes": max(depth, SpeculationConfig().max_nodes)}
    rule = given.get("rejection_sample_method")
    if rule == "standard":
        speculation["default_rule"] = VerificationRule.REJECTION.value
    elif rule is not None:
        name = printable(str(rule))
        lost.append(f"rejection_sample_method {name}: the rules here are coupled (default), rejection and typical")
    if method != "ngram" and given.get("draft_sample_method") == "greedy":
        lost.append("draft_sample_method greedy: drafts follow the request's temperature, with its own noise or drawn")
    return {"speculation": speculation} if speculation else {}


def _ngram(given: Mapping[str, Any]) -> Json:
    """vLLM takes the one that is given for both."""
    low, high = given.get("prompt_lookup_min"), given.get("prompt_lookup_max")
    if low is None and high is None:
        low = high = VLLM_NGRAM
    return {"prompt_lookup_min": high if low is None else low, "prompt_lookup_max": low if high is None else high}


def _draft_model(given: Mapping[str, Any]) -> Json:
    model: Json = {"model": given["model"]}
    if given.get("draft_tensor_parallel_size") is not None:
        model["tensor_parallel_size"] = given["draft_tensor_parallel_size"]
    if given.get("max_model_len") is not None:
        model["max_context_length"] = given["max_model_len"]
    return model


def _not_default(
    settings: ModelConfig | DrafterConfig | SpeculationConfig | NgramConfig, where: str, kept: tuple[str, ...]
) -> list[str]:
    """What was set to something else than its default and cannot be said in the other language."""
    fields = type(settings).model_fields
    changed = [name for name in settings.model_fields_set if getattr(settings, name) != fields[name].default]
    return [f"{where}.{name}: not part of a speculative config" for name in sorted(changed) if name not in kept]
