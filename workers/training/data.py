"""`outrider train data`: the target answers prompts through the engine, in batches.

Self-distillation as in Medusa (Cai et al. 2024, section 2.3.2): a draft has to guess what this target writes, so it
learns from what this target wrote.
"""

import random
from collections.abc import Callable
from dataclasses import asdict

from workers.core.allocator import keep_freed_memory
from workers.core.config import KvCacheConfig, VerifierConfig
from workers.core.errors import ConfigurationError
from workers.core.proposal import TreeBudget
from workers.core.request import GenerationRequest
from workers.core.sampling_params import SamplingParams, SpeculationMode, SpeculationParams
from workers.core.seeds import derive_seed
from workers.models.loader import load_model
from workers.text.chat_template import Message
from workers.text.prompt_file import tokenize_prompts
from workers.text.tokenizer import Tokenizer
from workers.training.answers import HIDDEN, LINES, Answer, AnswerWriter, read_answers
from workers.training.data_config import DataConfig
from workers.training.data_provenance import check_same_data, record_run
from workers.training.prompt_set import write_prompts
from workers.training.recorder import HiddenStateRecorder
from workers.training.target_identity import identify
from workers.verifier.assembly import build_engine
from workers.verifier.offline import Answered, run_requests

__all__ = ["generate_data"]

Progress = Callable[[int, int, int], None]
"""Answers there are, answers wanted, answer tokens there are."""


def generate_data(config: DataConfig, progress: Progress = lambda *_: None) -> None:
    """Answer all prompts that the output folder has no answer for yet.

    Raises `ConfigurationError` for prompts that are too long, and for a folder with answers of another run.
    """
    loaded = load_model(config.model)
    keep_freed_memory()  # after the loader's own large blocks are gone
    prompts = _prompts(config, loaded.tokenizer)
    _check_lengths(config, prompts, loaded.context_length)
    _check_earlier_answers(config, prompts, loaded.fingerprint)
    target = identify(config.model.model, loaded.model.config, loaded.tokenizer)
    recorder = HiddenStateRecorder()
    with AnswerWriter(config.output, loaded.hidden_size) as writer:
        todo = [index for index in range(len(prompts)) if index not in writer.done]
        if not todo:
            return
        record_run(config, len(writer.done), target_fingerprint=loaded.fingerprint, target=asdict(target))
        engine = build_engine(_engine_config(config, prompts), loaded, recorder)
        engine.start()
        requests = (_request(config, prompts[index], index) for index in todo)
        try:
            for done in run_requests(engine, requests, config.concurrency):
                rows = recorder.take(done.key)
                writer.append(_answer(done, todo[done.index], len(rows)), rows)
                progress(len(writer.done), len(prompts), writer.num_tokens)
        finally:
            engine.stop()


def _prompts(config: DataConfig, tokenizer: Tokenizer) -> list[list[int]]:
    if config.prompts is not None:
        return tokenize_prompts(config.prompts, tokenizer)[: config.num_prompts]
    try:
        texts = write_prompts(config.num_prompts, config.seed)
    except ValueError as error:
        raise ConfigurationError(
            f"num_prompts {config.num_prompts} is more than the built-in set has: {error}"
        ) from None
    return [tokenizer.encode_chat([Message("user", text)]) for text in texts]


def _check_lengths(config: DataConfig, prompts: list[list[int]], context_length: int) -> None:
    for number, prompt in enumerate(prompts, 1):
        if len(prompt) + config.max_tokens > context_length:
            raise ConfigurationError(
                f"{config.prompts or 'built-in prompts'}, prompt {number}: {len(prompt)} tokens and an answer of "
                f"max_tokens {config.max_tokens} exceed the context of {context_length} tokens; shorten it, or lower "
                "max_tokens"
            )


def _check_earlier_answers(config: DataConfig, prompts: list[list[int]], fingerprint: str) -> None:
    if not all((config.output / name).is_file() for name in (LINES, HIDDEN)):
        return
    answers = read_answers(config.output)
    if answers:
        check_same_data(config, fingerprint)
    for answer in answers:
        index = answer.prompt_index
        if index < len(prompts) and prompts[index] != answer.prompt_token_ids:
            raise ConfigurationError(
                f"{str(config.output)!r} holds an answer to another prompt {index + 1}: the prompts have changed; "
                "choose another output"
            )


def _request(config: DataConfig, prompt: list[int], index: int) -> GenerationRequest:
    seed = derive_seed(config.seed, index + 1)
    return GenerationRequest.build(
        f"data-{index}",
        tuple(prompt),
        SamplingParams(temperature=random.Random(seed).choice(config.temperatures), max_tokens=config.max_tokens),
        seed=seed,
        limits=TreeBudget(1, 1, 1),
        speculation=SpeculationParams(mode=SpeculationMode.ON),  # so that the recorder is told
    )


def _answer(done: Answered, prompt_index: int, hidden_rows: int) -> Answer:
    return Answer(
        prompt_index=prompt_index,
        prompt_token_ids=list(done.request.prompt_token_ids),
        answer_token_ids=done.token_ids,
        temperature=done.request.sampling.temperature,
        seed=done.request.seed,
        hidden_rows=hidden_rows,
    )


def _engine_config(config: DataConfig, prompts: list[list[int]]) -> VerifierConfig:
    block = KvCacheConfig().block_size
    longest = sorted(map(len, prompts))[-config.concurrency :]  # at worst these run at the same time
    blocks = sum((length + config.max_tokens + 2) // block + 2 for length in longest)
    return VerifierConfig(
        model=config.model,
        method="none",
        kv_cache=KvCacheConfig(num_blocks=blocks),
        max_running_requests=config.concurrency,
        max_waiting_requests=config.concurrency,
    )
