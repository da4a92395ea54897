"""TRL's GRPO with vLLM in colocate mode samples from a prompt whose images are expanded twice.

    python tests/upstream/trl_expands_images_twice.py MODEL      # any vision-language model that vLLM serves

Prints the image tokens of one prompt as training sees it and as vLLM sampled from it, and the gap between the
log-probabilities that the two give the sampled tokens. README.md beside this file has the note.
"""

import sys

import torch
from datasets import Dataset
from PIL import Image
from trl import GRPOConfig, GRPOTrainer

model = sys.argv[1]
prompt = [{"role": "user", "content": "What is shown?"}]
rows = Dataset.from_list([{"prompt": prompt, "images": [Image.new("RGB", (84, 84), "red")]}] * 4)
config = GRPOConfig(
    "outputs/upstream", per_device_train_batch_size=4, num_generations=4, max_completion_length=16, report_to="none",
    max_steps=1, learning_rate=0.0, logging_steps=1, bf16=torch.cuda.is_available(), save_strategy="no",
    use_vllm=True, vllm_mode="colocate", vllm_max_model_length=512, vllm_gpu_memory_utilization=0.3,
)  # fmt: skip
trainer = GRPOTrainer(model, lambda completions, **_: [0.0] * len(completions), config, rows)
image = trainer.model.config.image_token_id
generate = trainer.vllm_generation.generate


def counting(prompts, *args, **kwargs):
    output = generate(prompts, *args, **kwargs)
    print(f"image tokens: trainer {prompts[0].count(image)}, vLLM {list(output[0][0]).count(image)}")
    return output


trainer.vllm_generation.generate = counting
trainer._last_loaded_step = (
    0  # no push of the weights: at step 0 both have the checkpoint's, and a CPU build takes none
)
trainer.train()
print("mean gap", trainer.state.log_history[0]["sampling/sampling_logp_difference/mean"])
