"""A real gRPC server in this process, for unit tests of code that uses the SDK.

::

    with FakeServer("Hello, world") as server, server.client() as client:
        assert client.generate("any prompt").text == "Hello, world"

It answers from a script, can fail on command (`Fault`) and remembers what it was asked.
"""

from outrider.testing.clock import FakeClock
from outrider.testing.script import Fault, Reply, prompt_text
from outrider.testing.server import FakeServer

__all__ = ["FakeClock", "FakeServer", "Fault", "Reply", "prompt_text"]
