"""vLLM as the sampler of a GRPO run, with the proof that its samples come from the policy being trained.

class GRPOTrainer(VLLMRollouts, trl.GRPOTrainer): ...        # colocate repaired, every run checked

with serve("Qwen/Qwen2.5-VL-3B-Instruct") as server:         # server mode: an engine in a process of its own
    VLLMClient(base_url=server.url)

python -m recipe_lib vllm-check --model tiny-qwen2.5-vl      # the check by itself
"""

from recipe_lib.rollouts.parity import RolloutMismatch, Tolerance
from recipe_lib.rollouts.server import serve, server_command
from recipe_lib.rollouts.trainer import VLLMRollouts, require_backend

__all__ = ["RolloutMismatch", "Tolerance", "VLLMRollouts", "require_backend", "serve", "server_command"]
