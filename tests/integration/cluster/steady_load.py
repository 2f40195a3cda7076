"""Requests without a pause while something happens; every answer must be the known one."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from outrider import Client, Generation, RetryPolicy, SamplingParams, Speculation

__all__ = ["PATIENT", "SteadyLoad", "steady_load"]

PATIENT = RetryPolicy(max_attempts=200, max_suspect_attempts=200, max_backoff_s=1.0)
PROMPT = "The river rises"
SAMPLINGS = [
    SamplingParams(max_tokens=60, temperature=temperature, seed=5, ignore_eos=True) for temperature in (0.0, 0.8)
]
END_S = 240.0


@dataclass
class SteadyLoad:
    """What has been answered so far; `errors` must stay empty."""

    answers: list[Generation] = field(default_factory=list)
    errors: list[BaseException] = field(default_factory=list)


@contextmanager
def steady_load(
    address: str,
    workers: int = 2,
    *,
    metadata: dict[str, str] | None = None,
    api_key: str | None = None,
    pause_s: float = 0.0,
) -> Iterator[SteadyLoad]:
    """Within the block; at its end the last answers are waited for, and all of them are compared.

    `pause_s`: between two requests of a worker. `api_key`: None = the environment's.
    """
    load, over = SteadyLoad(), threading.Event()
    with Client(address, retry=PATIENT, silence_timeout=10.0, metadata=metadata or {}, api_key=api_key) as client:
        known = [client.generate(PROMPT, sampling=one, speculation=Speculation.off()) for one in SAMPLINGS]

        def ask(index: int) -> None:
            try:
                while not over.is_set():
                    answer = client.generate(PROMPT, sampling=SAMPLINGS[index], speculation=Speculation.on())
                    assert answer.token_ids == known[index].token_ids
                    assert answer.text == known[index].text
                    load.answers.append(answer)
                    over.wait(pause_s)
            except Exception as error:  # noqa: BLE001 - told to the test below
                load.errors.append(error)

        threads = [threading.Thread(target=ask, args=(number % len(SAMPLINGS),)) for number in range(workers)]
        for thread in threads:
            thread.start()
        try:
            yield load
        finally:
            over.set()
            for thread in threads:
                thread.join(END_S)
        assert not any(thread.is_alive() for thread in threads), "a request hangs"
        assert load.errors == []
