"""Sizes that bound a request, and the check of a request against them."""

from dataclasses import dataclass

from workers.core.errors import ContextLengthError, InvalidRequestError
from workers.core.request import GenerationRequest

__all__ = ["EngineLimits"]


@dataclass(frozen=True)
class EngineLimits:
    vocab_size: int
    context_length: int  # tokens, prompt and output together
    pool_tokens: int  # tokens that the whole K/V pool holds
    eos_token_ids: tuple[int, ...]

    def max_output_tokens(self, request: GenerationRequest) -> int:
        """Output tokens that the request may have; raises when it cannot fit or names foreign tokens."""
        prompt = len(request.prompt_token_ids)
        if not prompt:
            raise InvalidRequestError("the prompt is empty; it needs at least one token")
        for name, tokens in (("prompt", request.prompt_token_ids), ("output", request.output_token_ids)):
            for token in tokens:
                if not 0 <= token < self.vocab_size:
                    raise InvalidRequestError(
                        f"{name} token {token} is not below the vocabulary size {self.vocab_size}"
                    )
        request.sampling.check_vocabulary(self.vocab_size)
        limit = min(self.context_length, self.pool_tokens)
        wanted = request.sampling.max_tokens
        if prompt + (wanted or 1) > limit:
            raise ContextLengthError(
                f"{prompt} prompt tokens + max_tokens {wanted or 1} exceed the limit of {limit} tokens "
                f"(context {self.context_length}, KV cache {self.pool_tokens})"
            )
        return wanted or limit - prompt
