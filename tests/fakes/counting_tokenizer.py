"""A real tokenizer that counts its work, for tests that hold a bound without a clock."""

from collections.abc import Sequence

from workers.text.tokenizer import Tokenizer

__all__ = ["CountingTokenizer"]


class CountingTokenizer(Tokenizer):
    decoded_tokens = 0  # so far, over all calls of `decode`

    def decode(self, token_ids: Sequence[int]) -> str:
        self.decoded_tokens += len(token_ids)
        return super().decode(token_ids)
