"""The frozen values that pass between rooms. No room hands another anything that a later write can change.

Times are seconds, sizes bytes, divergences nats, rates 0..1.
"""

from qualgate.records.answers import FINISH_WORDS, Completion, Drift, FinishReason, JobFailure, JobResult, Score
from qualgate.records.arms import (
    CACHE_TOKEN,
    DEVICE_MEMORY,
    NOISE,
    TWIN,
    ArmFootprint,
    ArmIdentity,
    ArmSpec,
    QuantizeRecipe,
)
from qualgate.records.cases import CalibrationSet, Case, Evalset, ExternalCases, LmEvalTask, SetRef
from qualgate.records.evidence import SERVING_FIELDS, ArmEvidence, Attempt, RunEvidence, Stopped, UnitEvidence
from qualgate.records.policy import EarlyStop, FourArms, Policy, Prices, Quarantine, Rule, Slo, Tier
from qualgate.records.verdicts import (
    ArmService,
    ArmStep,
    Comparison,
    FourArm,
    Interaction,
    RuleStatus,
    Seen,
    Verdict,
    VerdictWord,
)
from qualgate.records.work import NOISE_ID, TEMPERATURES, Job, ModelFacts, Plan, Prompt, UnitKey, Window

__all__ = [
    "CACHE_TOKEN",
    "DEVICE_MEMORY",
    "FINISH_WORDS",
    "NOISE",
    "NOISE_ID",
    "SERVING_FIELDS",
    "TEMPERATURES",
    "TWIN",
    "ArmEvidence",
    "ArmFootprint",
    "ArmIdentity",
    "ArmService",
    "ArmSpec",
    "ArmStep",
    "Attempt",
    "CalibrationSet",
    "Case",
    "Comparison",
    "Completion",
    "Drift",
    "EarlyStop",
    "Evalset",
    "ExternalCases",
    "FinishReason",
    "FourArm",
    "FourArms",
    "Interaction",
    "Job",
    "JobFailure",
    "JobResult",
    "LmEvalTask",
    "ModelFacts",
    "Plan",
    "Policy",
    "Prices",
    "Prompt",
    "QuantizeRecipe",
    "Quarantine",
    "Rule",
    "RuleStatus",
    "RunEvidence",
    "Score",
    "Seen",
    "SetRef",
    "Slo",
    "Stopped",
    "Tier",
    "UnitEvidence",
    "UnitKey",
    "Verdict",
    "VerdictWord",
    "Window",
]
