"""Does vLLM sample from the policy that is trained? Gaps between log-probabilities, and the cause of a large one."""

from __future__ import annotations

from dataclasses import dataclass

import torch


class RolloutMismatch(RuntimeError):
    """vLLM and the trainer disagree on what was sampled; the message names the likely cause.

    Attributes:
        cause: `prompt`, `template`, `dtype`, `weights` or `unknown`.
        gap: the measured `Gap`, None where the prompts already differ.
    """

    def __init__(self, cause: str, text: str, gap: Gap | None):
        super().__init__(text)
        self.cause, self.gap = cause, gap


@dataclass(frozen=True)
class Gap:
    """|log p(trainer) - log p(vLLM)| over the sampled tokens, in nats: its mean, its largest value, the tokens."""

    mean: float
    max: float
    tokens: int


@dataclass(frozen=True)
class Tolerance:
    """The largest gap that a run goes on with, and how often it is looked at.

    In float32 both sides compute the same sums in another order: measured gaps stay under 0.001 on average.
    In bfloat16 a logit between 16 and 32 is rounded to a multiple of 0.125, on both sides and by other kernels, so
    that a mean of a few hundredths, and one token in millions whole nats off, are the number format's and no fault.
    A wrong prompt costs whole nats on average.

    every: rollouts from one look to the next; the first is always looked at.
    """

    mean: float
    max: float
    every: int = 1

    @classmethod
    def of(cls, dtype: torch.dtype, every: int = 1) -> Tolerance:
        """The tolerance of a run that computes in `dtype`."""
        mean, largest = (0.005, 0.3) if dtype == torch.float32 else (0.05, 8.0)
        return cls(mean, largest, every)


def measure(trainer_logps: torch.Tensor, vllm_logps: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Sum, maximum and count of the gaps of one process, shape `(1, 3)`, float64, so that processes can be gathered.

    Args:
        trainer_logps, vllm_logps: log-probabilities of the sampled tokens, shape `(rows, tokens)`. NaN where vLLM
            could not score a token, which is left out.
        mask: 1 where a token was sampled.
    """
    delta = (trainer_logps - vllm_logps).abs()[mask.bool()].double()
    delta = delta[~delta.isnan()]
    largest = delta.max() if len(delta) else delta.new_zeros(())
    return torch.stack([delta.sum(), largest, torch.tensor(float(len(delta)), device=delta.device).double()])[None]


def combine(parts: torch.Tensor) -> Gap:
    """The gap over all processes, from their `measure`s, shape `(processes, 3)`."""
    tokens = int(parts[:, 2].sum())
    return Gap(float(parts[:, 0].sum() / max(tokens, 1)), float(parts[:, 1].max()), tokens)


def check_prompts(pairs: list[tuple[list[int], list[int]]], tokenizer, image_token_id: int | None) -> None:
    """Raise RolloutMismatch where vLLM's prompt, after its own expansion of images, is not the trainer's.

    Args:
        pairs: a row, the ids that training sees and those that vLLM sampled from.
    """
    for row, (ours, theirs) in enumerate(pairs):
        if list(ours) == list(theirs):
            continue
        counts = ours.count(image_token_id), list(theirs).count(image_token_id)
        first = next((i for i, (a, b) in enumerate(zip(ours, theirs)) if a != b), min(len(ours), len(theirs)))
        shown = [tokenizer.decode(ids[max(0, first - 8) : first + 8]) for ids in (ours, theirs)]
        where = f"from token {first} on the trainer has {shown[0]!r} and vLLM {shown[1]!r}"
        if counts[0] != counts[1]:
            text = (
                f"prompt: row {row} has {counts[0]} image tokens in training and {counts[1]} in vLLM's prompt; "
                f"{where}. Either images are expanded twice, or vLLM's processor has other size limits"
            )
            raise RolloutMismatch("prompt", text, None)
        text = f"template: the text of row {row} differs; {where}. Both sides must render one chat template"
        raise RolloutMismatch("template", text, None)


def diagnose(generation, gap: Gap, tolerance: Tolerance) -> RolloutMismatch:
    """The error for a gap over the tolerance. Prompts are known to agree by then, so it is in the numbers.

    Pushes the weights to vLLM once more: what that changes had not been in vLLM.
    """
    found = f"|log p(trainer) - log p(vLLM)|: mean {gap.mean:.4f}, max {gap.max:.3f} over {gap.tokens} tokens"
    allowed = f"allowed are {tolerance.mean} and {tolerance.max}"
    if generation.mode == "colocate":
        engine = generation.llm.llm_engine.model_config.dtype
        if engine != generation.dtype:
            text = f"dtype: vLLM computes in {engine} and the trainer in {generation.dtype}. {found}; {allowed}"
            return RolloutMismatch("dtype", text, gap)
        stale = stale_weights(generation)
        if stale:
            text = (
                f"weights not synced: {len(stale)} tensors of vLLM's changed when the trainer's were pushed once more, "
                f"such as {stale[0]!r}. {found}; {allowed}"
            )
            return RolloutMismatch("weights", text, gap)
    text = (
        f"no known cause{' (prompts, dtype and weights agree)' if generation.mode == 'colocate' else ''}. {found}; "
        f"{allowed}. Left are {'' if generation.mode == 'colocate' else 'the prompt and the weights on the server, '}"
        "the model's implementation (vllm_model_impl: transformers) and a real fault of vLLM's"
    )
    return RolloutMismatch("unknown", text, gap)


def stale_weights(generation) -> list[str]:
    """Names of vLLM's tensors that another push of the trainer's weights changes. Colocate only."""

    def sums() -> dict[str, float]:
        # of absolute values, weighted by place, so that a permutation shows too; float32 keeps memory small
        return {
            name: float((p.detach().flatten().float() * torch.linspace(1, 2, p.numel(), device=p.device)).sum())
            for name, p in generation.engine_model.named_parameters()
        }

    before = sums()
    type(generation).sync_weights(generation)
    return [name for name, after in sums().items() if after != before[name]]
