"""The verification rules by name."""

from workers.core.sampling_params import VerificationRule
from workers.sampling.base import Rule, Verdict
from workers.sampling.coupled import CoupledRule
from workers.sampling.rejection import RejectionRule
from workers.sampling.typical import TypicalRule

__all__ = ["Rule", "Verdict", "rule_for"]


def rule_for(rule: VerificationRule) -> Rule:
    """The implementation of a request's rule."""
    match rule:
        case VerificationRule.COUPLED:
            return CoupledRule()
        case VerificationRule.REJECTION:
            return RejectionRule()
        case VerificationRule.TYPICAL:
            return TypicalRule()
