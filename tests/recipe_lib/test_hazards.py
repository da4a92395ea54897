"""What GRPO on pictures stumbles over, each on a real step of a tiny random model; cases/README.md lists them."""

import math

import pytest
import torch
import transformers as tf
from datasets import Dataset
from PIL import Image
from trl import GRPOConfig

from data_scripts import tiny_families
from recipe_lib import trainers

FAMILIES = ("qwen2.5-vl", "smolvlm")
pytestmark = pytest.mark.slow


def by_length(completions, **columns):
    """A reward that differs within most groups."""
    return [float(len(completion[0]["content"])) for completion in completions]


def picture(colour, width=56, height=56):
    return Image.new("RGB", (width, height), colour)


def rows(counts, texts=None, absent=()):
    """Rows with so many pictures each, every picture of another grey; `absent` is what no picture is written as."""
    made, grey = [], 20
    for number, count in enumerate(counts):
        pictures = [picture((grey + 30 * i,) * 3) for i in range(count)]
        grey += 30 * count
        text = {"type": "text", "text": texts[number] if texts else f"Question {number}?"}
        prompt = [{"role": "user", "content": [{"type": "image"}] * count + [text]}]
        made.append({"prompt": prompt, "images": pictures or (list(absent) if absent is not None else None)})
    # lazily, as recipe_lib.datasets does it: Arrow would turn None and [] into one another
    plain = Dataset.from_dict({"row": range(len(made))})
    return plain.with_transform(lambda batch: {key: [made[i][key] for i in batch["row"]] for key in made[0]})


def make_trainer(folder, family, dataset, *, reward=by_length, model=None, processor=None, **settings):
    processor = processor or tiny_families.processor(family)
    given = {"per_device_train_batch_size": 4, "num_generations": 2, "max_completion_length": 6, "max_steps": 2}
    config = GRPOConfig(
        output_dir=str(folder),
        shuffle_dataset=False,
        learning_rate=1e-3,
        gradient_checkpointing=False,
        bf16=False,
        logging_steps=1,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        **{**given, **settings},
    )
    return trainers.GRPOTrainer(
        model=model or tiny_families.model(family, processor),
        reward_funcs=reward,
        args=config,
        train_dataset=dataset,
        processing_class=processor,
    )


def train(trainer):
    """Train, and see that the weights moved and stayed finite."""
    before = [weight.detach().clone() for weight in trainer.model.parameters()]
    trainer.train()
    after = list(trainer.model.parameters())
    assert all(torch.isfinite(weight).all() for weight in after)
    assert any(not torch.equal(old, new) for old, new in zip(before, after, strict=True))
    for entry in trainer.state.log_history:
        for key, value in entry.items():
            assert value is None or math.isfinite(value), (key, value)


@pytest.mark.parametrize("family", FAMILIES)
def test_image_tokens_cannot_be_sampled(family, tmp_path):
    """The policy would say nothing but the tokens that stand for pictures; it cannot, and the next step runs."""
    processor = tiny_families.processor(family)
    token = processor.image_token_id
    wish = {"sequence_bias": [[[token], 1000.0]]}
    trainer = make_trainer(tmp_path, family, rows([1, 1]), processor=processor, generation_kwargs=wish)
    train(trainer)
    for batch in trainer._buffered_inputs:
        assert not (batch["completion_ids"] == token).any()
    del trainer.generation_kwargs["suppress_tokens"]  # without it, that is all it says
    trainer.generation_config.suppress_tokens = None
    with pytest.raises((ValueError, RuntimeError)):
        trainer.train()


@pytest.mark.parametrize("name", ["<|video_pad|>", "<|vision_start|>", "<|vision_end|>"])
def test_other_vision_tokens_do_no_harm(name, tmp_path):
    processor = tiny_families.processor("qwen2.5-vl")
    wish = {"sequence_bias": [[[processor.tokenizer.convert_tokens_to_ids(name)], 8.0]]}
    train(make_trainer(tmp_path, "qwen2.5-vl", rows([1, 1]), processor=processor, generation_kwargs=wish))


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("counts", [(0, 1), (1, 0), (0, 0)], ids=["first", "last", "all"])
@pytest.mark.parametrize("absent", [(), None], ids=["empty", "None"])
def test_rows_without_images(family, counts, absent, tmp_path):
    train(make_trainer(tmp_path, family, rows(counts, absent=absent)))


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("counts", [(1, 3, 0), (2, 0, 2, 0), (3, 0, 0, 1)], ids=str)
def test_every_row_keeps_its_own_pictures(family, counts, tmp_path):
    """Counts that differ, and accumulation, and old log-probabilities in chunks: pixels go with their prompt.

    With (2, 0) SmolVLM's padded block has as many rows as there are pictures, which TRL mistakes for one a row.
    """
    size = 2 * len(counts)
    settings = {"per_device_train_batch_size": 2, "gradient_accumulation_steps": len(counts), "num_iterations": 2}
    processor = tiny_families.processor(family)
    dataset = rows(counts)
    trainer = make_trainer(tmp_path, family, dataset, processor=processor, **settings)
    train(trainer)
    assert len(trainer._buffered_inputs) * 2 == size
    own = {}
    for number in range(len(counts)):
        row = dataset[number]
        text = processor.apply_chat_template(row["prompt"], add_generation_prompt=True)
        inputs = processor(text=[text], images=[row["images"]] if row["images"] else None, return_tensors="pt")
        own[number] = inputs.get("pixel_values", torch.zeros(0)).flatten()
    for batch in trainer._buffered_inputs:
        numbers = [int(text.partition("Question ")[2][0]) for text in processor.batch_decode(batch["prompt_ids"])]
        wanted = [own[number] for number in numbers]
        found = batch.get("pixel_values", torch.zeros(0))
        if family == "qwen2.5-vl":  # patches of all pictures, one after the other
            assert torch.equal(found.flatten(), torch.cat(wanted))
        else:  # one block a row, padded with zeros
            for block, pixels in zip(found, wanted, strict=True):
                assert torch.equal(block.flatten()[: len(pixels)], pixels)
                assert not block.flatten()[len(pixels) :].any()


@pytest.mark.parametrize("family", FAMILIES)
def test_two_images_a_row_with_accumulation(family, tmp_path):
    """A step that is cut in two has the gradient of the whole one: each row was scored with its own pictures."""
    gradients = []
    for batch, accumulation in ((8, 1), (4, 2)):
        settings = {"per_device_train_batch_size": batch, "gradient_accumulation_steps": accumulation, "max_steps": 1}
        plain = {"optim": "sgd", "max_grad_norm": 0.0, "lr_scheduler_type": "constant"}
        trainer = make_trainer(tmp_path, family, rows([2, 2, 2, 2]), **plain, **settings)
        before = torch.cat([weight.detach().flatten() for weight in trainer.model.parameters()])
        train(trainer)
        gradients.append(torch.cat([weight.detach().flatten() for weight in trainer.model.parameters()]) - before)
    assert torch.nn.functional.cosine_similarity(*gradients, dim=0) > 0.9999
    assert torch.allclose(*gradients, atol=1e-6)


@pytest.mark.parametrize("splitting", [False, True])
def test_smolvlm_with_and_without_splitting(splitting, tmp_path):
    processor = tiny_families.processor("smolvlm", do_image_splitting=splitting)
    dataset = rows([1, 1])
    trainer = make_trainer(tmp_path, "smolvlm", dataset, processor=processor)
    train(trainer)
    tokens = (trainer._buffered_inputs[0]["prompt_ids"] == processor.image_token_id).sum(1)
    assert tokens.tolist() == [4 * (5 if splitting else 1)] * 4  # four tiles of four tokens, and the overview


def test_an_abstaining_reward_leaves_its_siblings_alone(tmp_path):
    def some(completions, **columns):
        return [1.0, None, 0.0] * (len(completions) // 3)

    settings = {"num_generations": 3, "per_device_train_batch_size": 6}
    trainer = make_trainer(tmp_path, "qwen2.5-vl", rows([1, 1]), reward=some, **settings)
    train(trainer)
    advantages = list(trainer._logs["advantages"])
    deviation = math.sqrt(0.5)  # of the two that were scored
    for group in (advantages[:3], advantages[3:]):
        assert group == pytest.approx([0.5 / deviation, 0.0, -0.5 / deviation], abs=1e-3)
    assert trainer.state.log_history[0]["reward"] == pytest.approx(0.5)


def test_unequal_prompts_are_padded_alike(tmp_path):
    """Ids and the marks of image tokens stand at the same places, the short prompt's padding on the left."""
    texts = ["Short?", "A much longer question than the other one, isn't it?"]
    trainer = make_trainer(tmp_path, "qwen2.5-vl", rows([1, 2], texts))
    train(trainer)
    image = trainer.processing_class.image_token_id
    batch = trainer._buffered_inputs[0]
    ids = torch.cat([batch["prompt_ids"], batch["completion_ids"]], 1)
    assert torch.equal(batch["mm_token_type_ids"] == 1, ids == image)
    masks = batch["prompt_mask"]
    assert masks[:, -1].all() and not masks[:, 0].all()
    assert torch.equal(masks, masks.sort(1).values), "padding is on the left"


def test_gspo_trains_a_mixture_of_experts(tmp_path):
    """GSPO was made for these: one rollout, four steps, with a ratio that moves, and a router among the weights."""
    processor = tiny_families.processor("qwen3-vl")
    dense = tiny_families.model("qwen3-vl", processor).config
    experts = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
    text = {**dense.text_config.to_dict(), **experts, "model_type": "qwen3_vl_moe_text"}
    ids = {key: getattr(dense, key) for key in ("image_token_id", "video_token_id", "vision_start_token_id")}
    vision = {**dense.vision_config.to_dict(), "model_type": "qwen3_vl_moe_vision"}
    config = tf.Qwen3VLMoeConfig(
        text_config=text, vision_config=vision, vision_end_token_id=dense.vision_end_token_id, **ids
    )
    torch.manual_seed(0)
    settings = {
        "importance_sampling_level": "sequence",
        "loss_type": "grpo",
        "epsilon": 3e-4,
        "epsilon_high": 4e-4,
        "steps_per_generation": 4,
        "max_steps": 4,
        "temperature": 1.0,
        "max_completion_length": 12,
    }
    model = tf.Qwen3VLMoeForConditionalGeneration(config)
    model.generation_config.eos_token_id = processor.tokenizer.eos_token_id
    trainer = make_trainer(
        tmp_path,
        "qwen3-vl",
        rows([1] * 8),
        model=model,
        processor=processor,
        lr_scheduler_type="constant",
        **settings,
    )
    router = next(weight for name, weight in model.named_parameters() if name.endswith("mlp.gate.weight"))
    before = router.detach().clone()
    train(trainer)
    assert not torch.equal(router, before)
    clipped = [entry["clip_ratio/region_mean"] for entry in trainer.state.log_history if "loss" in entry]
    assert clipped[0] == 0 and max(clipped[1:]) > 0, clipped
