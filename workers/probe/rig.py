"""An engine with the proposer that is being probed; a drafter runs in a process of its own, over real gRPC."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from workers.core.config import KvCacheConfig, SpeculationConfig, VerifierConfig
from workers.core.errors import ConfigurationError
from workers.core.proposal import TreeBudget
from workers.core.request import DrafterEndpoint, GenerationRequest
from workers.core.sampling_params import SamplingParams, SpeculationMode, SpeculationParams, VerificationRule
from workers.core.seeds import derive_seed
from workers.models.loaded import LoadedModel
from workers.probe.config import ProbeConfig, ProposerConfig
from workers.probe.findings import Tree
from workers.probe.stopwatch import Stopwatch
from workers.proposers.remote import RemoteProposer
from workers.rpc.process import server_process
from workers.verifier.assembly import build_engine
from workers.verifier.engine import VerifierEngine
from workers.verifier.offline import Answered, run_requests
from workers.verifier.proposer import build_proposer

__all__ = ["TOGETHER", "Rig", "open_rig"]

TOGETHER = 8  # requests at a time where only acceptance counts
CONNECT_S = 30.0
GRACE_MS = 1000.0  # requests that always speculate are to be measured with their proposals, however late


@dataclass(frozen=True)
class Rig:
    """A running engine, what its proposer costs, and where the drafters are."""

    engine: VerifierEngine
    drafting: Stopwatch
    drafters: tuple[DrafterEndpoint, ...]
    seed: int

    def request(
        self,
        index: int,
        prompt: Sequence[int],
        mode: SpeculationMode,
        tree: Tree,
        *,
        temperature: float,
        max_tokens: int,
        equal_work: bool,
        rule: VerificationRule = VerificationRule.COUPLED,
    ) -> GenerationRequest:
        """With `equal_work` it goes on to `max_tokens`, so that all modes write as much; else it ends where it ends."""
        return GenerationRequest.build(
            f"probe-{index}",
            tuple(prompt),
            SamplingParams(temperature=temperature, max_tokens=max_tokens, ignore_eos=equal_work),
            seed=derive_seed(self.seed, index + 1),
            limits=TreeBudget(tree.depth, tree.width, tree.nodes),
            speculation=SpeculationParams(mode=mode, rule=rule),
            drafters=self.drafters,
        )

    def run(self, requests: Iterable[GenerationRequest], concurrency: int) -> list[Answered]:
        self.drafting.reset()
        return sorted(run_requests(self.engine, requests, concurrency), key=lambda answered: answered.index)


@contextmanager
def open_rig(
    config: ProbeConfig, name: str, proposer: ProposerConfig, loaded: LoadedModel, longest: int
) -> Iterator[Rig]:
    """`longest`: tokens of the longest prompt. Raises `ConfigurationError` when the drafter refuses the target."""
    verifier = _verifier_config(config, proposer, longest)
    with ExitStack() as stack:
        drafters: tuple[DrafterEndpoint, ...] = ()
        if proposer.drafter is not None:
            said = stack.enter_context(server_process("draft", proposer.drafter))
            drafters = (DrafterEndpoint(said["id"], said["address"], said["incarnation"]),)
        inner = build_proposer(verifier, loaded, f"probe-{name}", incarnation=1)
        stack.callback(inner.shutdown)
        if isinstance(inner, RemoteProposer) and not inner.connect([d.address for d in drafters], CONNECT_S):
            raise ConfigurationError(f"proposers.{name}: the drafter refuses this target; do their tokenizers differ?")
        drafting = Stopwatch(inner)
        engine = build_engine(verifier, loaded, inner)
        engine.start()
        stack.callback(engine.stop)
        yield Rig(engine, drafting, drafters, config.seed)


def _verifier_config(config: ProbeConfig, proposer: ProposerConfig, longest: int) -> VerifierConfig:
    most = max(TOGETHER, *config.concurrency)
    nodes = max(tree.nodes for tree in config.trees)
    blocks = (longest + config.max_tokens + nodes + 1) // KvCacheConfig().block_size + 2
    return VerifierConfig(
        model=config.target,
        kv_cache=KvCacheConfig(num_blocks=most * blocks),
        speculation=SpeculationConfig(
            max_depth=max(tree.depth for tree in config.trees),
            max_width=max(tree.width for tree in config.trees),
            max_nodes=nodes,
            max_grace_ms=GRACE_MS,
            allow_typical=True,
        ),
        method=proposer.method,
        ngram=proposer.ngram,
        medusa=proposer.medusa,
        layerskip=proposer.layerskip,
        max_running_requests=most,
        max_waiting_requests=most,
        max_tokens_per_step=max(512, most * (1 + nodes)),
    )
