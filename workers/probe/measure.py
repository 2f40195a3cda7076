"""The measurements of `outrider probe`, one proposer after another, all in one run."""

import time
from collections.abc import Callable, Sequence

from workers.core.errors import ConfigurationError
from workers.core.sampling_params import SpeculationMode, VerificationRule
from workers.models.loaded import LoadedModel
from workers.models.loader import load_model
from workers.probe.config import ProbeConfig
from workers.probe.findings import Acceptance, Cost, DraftCost, Findings, Speed, Tree
from workers.probe.rig import TOGETHER, Rig, open_rig
from workers.probe.verdict import predicted_speedup
from workers.runner.kv_memory import storage_for
from workers.runner.model_runner import ModelRunner
from workers.text.prompt_file import tokenize_prompts
from workers.verifier.offline import Answered
from workers.verifier.step_profile import profile_steps

__all__ = ["MODES", "probe"]

PROFILE_MS = 8000.0
PROFILE_SLOTS = 2048
BURST_TOKENS = 16  # of each request, to see what drafting costs
MODES = (SpeculationMode.OFF, SpeculationMode.ON, SpeculationMode.AUTO)

Prompts = Sequence[Sequence[int]]
Report = Callable[[str], None]


def probe(config: ProbeConfig, report: Report = lambda _: None) -> Findings:
    """Measure everything; `report` is told what is going on.

    Every proposer is started once before anything is measured, so that settings that cannot work cost no results.
    """
    report("loading the target")
    loaded = load_model(config.target)
    prompts = tokenize_prompts(config.prompts, loaded.tokenizer)[: config.max_prompts]
    longest = max(map(len, prompts))
    if longest + config.max_tokens > loaded.context_length:
        raise ConfigurationError(
            f"{config.prompts}: the longest prompt has {longest} tokens; with max_tokens {config.max_tokens} that is "
            f"more than the target's context holds ({loaded.context_length})"
        )
    for name, proposer in config.proposers.items():
        report(f"{name}: does it start?")
        with open_rig(config, name, proposer, loaded, longest):
            pass
    report("cost of a step by its rows")
    verify_ms = _verify_ms(loaded)
    acceptances: list[Acceptance] = []
    drafts: list[DraftCost] = []
    speeds: list[Speed] = []
    for name, proposer in config.proposers.items():
        with open_rig(config, name, proposer, loaded, longest) as rig:
            own = _acceptances(rig, name, config, prompts, report)
            drafts += _draft_costs(rig, name, config, prompts, report)
            speeds += _speeds(rig, config, prompts, own, Cost(verify_ms, tuple(drafts)), report)
            acceptances += own
    cost = Cost(verify_ms, tuple(drafts))
    return Findings(config.target.model, len(prompts), tuple(acceptances), cost, tuple(speeds))


def _verify_ms(loaded: LoadedModel) -> dict[int, float]:
    samples = profile_steps(
        ModelRunner(loaded, storage_for(loaded, PROFILE_SLOTS)),
        num_slots=PROFILE_SLOTS,
        context_length=loaded.context_length,
        max_rows=PROFILE_SLOTS,
        limit_ms=PROFILE_MS,
    )
    shortest = min(sample.load.context / sample.load.requests for sample in samples)
    return {s.load.rows: s.ms for s in samples if s.load.context / s.load.requests == shortest}


def _acceptances(rig: Rig, name: str, config: ProbeConfig, prompts: Prompts, report: Report) -> list[Acceptance]:
    found = []
    for tree in (choice.tree for choice in config.trees):
        for rule in config.rules:
            for temperature in config.temperatures:
                report(f"{name}: acceptance, tree {tree}, {rule}, temperature {temperature:g}")
                requests = (
                    rig.request(
                        index,
                        prompt,
                        SpeculationMode.ON,
                        tree,
                        temperature=temperature,
                        max_tokens=config.max_tokens,
                        equal_work=False,
                        rule=rule,
                    )
                    for index, prompt in enumerate(prompts)
                )
                answers = rig.run(requests, TOGETHER)
                found.append(_acceptance(name, tree, rule, temperature, answers))
    return found


def _acceptance(
    name: str, tree: Tree, rule: VerificationRule, temperature: float, answers: Sequence[Answered]
) -> Acceptance:
    stats = [answered.stats for answered in answers]
    depth = max((len(s.drafted_per_depth) for s in stats), default=0)

    def per_depth(lists: Sequence[Sequence[int]]) -> tuple[int, ...]:
        return tuple(sum(counts[d] for counts in lists if d < len(counts)) for d in range(depth))

    return Acceptance(
        proposer=name,
        tree=tree,
        rule=rule.value,
        temperature=temperature,
        output_tokens=sum(s.output_tokens for s in stats),
        verify_steps=sum(s.verify_steps for s in stats),
        drafted_tokens=sum(s.drafted_tokens for s in stats),
        drafted_per_depth=per_depth([s.drafted_per_depth for s in stats]),
        accepted_per_depth=per_depth([s.accepted_per_depth for s in stats]),
    )


def _draft_costs(rig: Rig, name: str, config: ProbeConfig, prompts: Prompts, report: Report) -> list[DraftCost]:
    costs = []
    for tree in (choice.tree for choice in config.trees):
        for concurrency in config.concurrency:
            report(f"{name}: cost of drafting, tree {tree}, {concurrency} at a time")
            requests = [
                rig.request(
                    index,
                    prompt,
                    SpeculationMode.ON,
                    tree,
                    temperature=0.0,
                    max_tokens=BURST_TOKENS,
                    equal_work=True,
                )
                for index, prompt in enumerate(_cycled(prompts, max(concurrency, 2)))
            ]
            rig.run(requests, concurrency)
            costs.append(DraftCost(name, tree, concurrency, rig.drafting.ms_per_step))
    return costs


def _speeds(
    rig: Rig, config: ProbeConfig, prompts: Prompts, acceptances: Sequence[Acceptance], cost: Cost, report: Report
) -> list[Speed]:
    """With the tree that promises most."""
    speeds = []
    for temperature in config.temperatures:
        candidates = [a for a in acceptances if a.temperature == temperature and a.rule == config.rules[0].value]
        for concurrency in config.concurrency:
            best = max(candidates, key=lambda a: predicted_speedup(a, cost, concurrency))
            report(f"{best.proposer}: speed, tree {best.tree}, temperature {temperature:g}, {concurrency} at a time")
            wave = _cycled(prompts, max(concurrency, config.speed_prompts))
            rates = _rates(rig, config, wave, best.tree, temperature, concurrency)
            promised = predicted_speedup(best, cost, concurrency)
            off, on, auto = (tuple(rates[mode]) for mode in MODES)
            speeds.append(Speed(best.proposer, best.tree, temperature, concurrency, off, on, auto, predicted=promised))
    return speeds


def _rates(
    rig: Rig, config: ProbeConfig, prompts: Prompts, tree: Tree, temperature: float, concurrency: int
) -> dict[SpeculationMode, list[float]]:
    """Tokens per second of each round in each of MODES, which take turns; every other round in reverse."""
    rates: dict[SpeculationMode, list[float]] = {mode: [] for mode in MODES}
    for number in range(config.rounds):
        for mode in MODES if number % 2 == 0 else reversed(MODES):
            requests = [
                rig.request(
                    index,
                    prompt,
                    mode,
                    tree,
                    temperature=temperature,
                    max_tokens=config.max_tokens,
                    # Answers of different lengths would leave fewer running; past its end one may repeat itself.
                    equal_work=concurrency > 1,
                    rule=config.rules[0],
                )
                for index, prompt in enumerate(prompts)
            ]
            started = time.perf_counter()
            answers = rig.run(requests, concurrency)
            rates[mode].append(sum(len(a.token_ids) for a in answers) / (time.perf_counter() - started))
    return rates


def _cycled(prompts: Prompts, count: int) -> Prompts:
    return [prompts[index % len(prompts)] for index in range(count)]
