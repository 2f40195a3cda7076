"""Time that passes only when somebody sleeps."""

__all__ = ["FakeClock"]


class FakeClock:
    """`Client(..., clock=clock, sleep=clock.sleep)`; an `AsyncClient` takes `sleep=clock.async_sleep`."""

    def __init__(self) -> None:
        self.now = 0.0
        self.sleeps: list[float] = []

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.sleeps.append(seconds)
        self.now += seconds

    async def async_sleep(self, seconds: float) -> None:
        self.sleep(seconds)
