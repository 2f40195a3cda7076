"""The keyword arguments of `generate` and `stream`."""

from collections.abc import Mapping, Sequence

from outrider.params import ChatMessage, SamplingFields, SamplingParams, Speculation

__all__ = ["Messages", "RequestOptions"]

Messages = Sequence[ChatMessage | Mapping[str, str]]


class RequestOptions(SamplingFields, total=False):
    """What may stand beside the prompt. The fields of `SamplingParams` may be given directly, too."""

    messages: Messages | None
    """A conversation instead of a text prompt; the model's chat template is applied."""
    token_ids: Sequence[int] | None
    """Token ids of the model's own tokenizer instead of a text prompt."""
    sampling: SamplingParams | None
    """Sampling parameters; fields given directly take precedence."""
    speculation: Speculation | None
    cache_salt: str
    """Share cached K/V only with requests of the same salt."""
    session_id: str
    """Requests with the same one prefer the same replicas: a conversation, an agent's run. At most 128 characters."""
    deadline: float | None
    """Seconds that the server may spend; the answer then ends with finish reason "deadline"."""
    priority: int
    """-10 (first) to 10 (last), 0 when not given, as in vLLM; the key's limits say how urgent it may be."""
    request_id: str | None
    """At most 128 characters; drawn by the SDK when it is not given."""
    model: str
    """Empty, or the name that `model_info` returns."""
