"""Any set to TRL's columns: found, checked beforehand, decoded lazily, and taken by TRL's own trainers."""

from __future__ import annotations

import io
import pickle

import numpy as np
import pytest
import torch
from datasets import Dataset, Features, Image, List, Value, load_from_disk
from PIL import Image as PILImage
from trl import DPOConfig, DPOTrainer, GRPOConfig

from data_scripts import tiny_families
from recipe_lib import columns, trainers
from recipe_lib.columns import find_columns, ready, renamed
from recipe_lib.conversations import build_prompt, count_images
from recipe_lib.image_sources import RowError, Source


def jpeg(number: int = 0, width: int = 60, height: int = 44) -> bytes:
    buffer = io.BytesIO()
    PILImage.new("RGB", (width, height), (number * 37 % 256, 80, 160)).save(buffer, "JPEG")
    return buffer.getvalue()


def single(rows: int = 4, **extra) -> Dataset:
    """A public set as they often are: one picture a row, under names of its own."""
    data = {
        "image": [{"bytes": jpeg(i), "path": None} for i in range(rows)],
        "problem": [f"What is in picture {i}?" for i in range(rows)],
        "answer": [str(i) for i in range(rows)],
        **extra,
    }
    return Dataset.from_dict(data).cast_column("image", Image())


def several(images: list, **extra) -> Dataset:
    """One list of pictures a row; None and [] are kept apart."""
    stored = [None if row is None else [{"bytes": jpeg(i), "path": None} for i in row] for row in images]
    data = {"images": stored, "prompt": ["Hi?"] * len(images), "solution": ["1"] * len(images), **extra}
    features = {"images": List(Image())} | {name: Value("string") for name in data if name != "images"}
    return Dataset.from_dict(data, features=Features(features))


# --- finding columns ------------------------------------------------------------------------------


def test_usual_names_are_found_and_given_ones_win():
    assert find_columns(["image", "problem", "answer"], "grpo") == {
        "prompt": "problem",
        "images": "image",
        "solution": "answer",
    }
    found = find_columns(["image", "problem", "q2", "answer"], "grpo", {"prompt": "q2", "images": None})
    assert found == {"prompt": "q2", "solution": "answer"}


@pytest.mark.parametrize(
    ("names", "kind", "given", "words"),
    [
        (["image", "problem"], "grpo", {}, r"no column for 'solution' among: image, problem; .*--column solution="),
        (["image", "prompt", "chosen"], "mpo", {}, "no column for 'rejected'"),
        (["prompt", "solution"], "grpo", {"prompt": "gone"}, "the set has no column 'gone'; it has: prompt, solution"),
        (["prompt", "solution"], "grpo", {"colour": "x"}, "no such column of TRL's: colour; known: prompt"),
        (["prompt"], "sft", {}, "kind='sft'; known kinds: grpo, mpo"),
        (["input_ids", "attention_mask", "pixel_values"], "grpo", {}, "through a processor already"),
    ],
)
def test_missing_columns_are_named_with_the_remedy(names, kind, given, words):
    with pytest.raises(ValueError, match=words):
        find_columns(names, kind, given)


def test_a_taken_name_makes_room_for_the_wanted_column():
    dataset = single(solution=["worked out"] * 4)
    assert renamed(dataset, "grpo", {"solution": "answer"})[2]["solution"] == "2"


# --- lazily ---------------------------------------------------------------------------------------


def test_rows_come_out_in_trls_columns():
    dataset, skipped = ready(single(), style="think_answer")
    row = dataset[2]
    assert skipped == []
    assert [image.mode for image in row["images"]] == ["RGB"]
    assert [message["role"] for message in row["prompt"]] == ["system", "user"]
    assert row["prompt"][1]["content"] == [{"type": "image"}, {"type": "text", "text": "What is in picture 2?"}]
    assert (row["solution"], row["id"]) == ("2", 2)
    assert dataset["solution"][:2] == ["0", "1"]
    assert set(dataset.column_names) == {"prompt", "images", "solution", "id"}


def test_nothing_is_decoded_before_a_row_is_read_and_the_stored_bytes_stay(monkeypatch):
    source = single(6)
    monkeypatch.setattr(columns, "to_rgb", lambda *a, **k: pytest.fail("decoded while getting ready"))
    dataset, _ = ready(source)
    monkeypatch.undo()
    stored = dataset.with_format(None)["images"]
    assert [row["bytes"] for row in stored] == [jpeg(i) for i in range(6)]
    assert dataset[5]["images"][0].size == (60, 44)
    pickle.loads(pickle.dumps(dataset))  # for the workers of a data loader


@pytest.mark.parametrize("feature", [Image(), List(Image())])
def test_getting_ready_writes_nothing_to_disk(feature, tmp_path):
    stored = {"bytes": jpeg(), "path": None}
    values = [stored if isinstance(feature, Image) else [stored, stored]] * 50
    features = Features({"images": feature, "prompt": Value("string"), "solution": Value("string")})
    Dataset.from_dict(
        {"images": values, "prompt": ["Q?"] * 50, "solution": ["1"] * 50}, features=features
    ).save_to_disk(tmp_path / "set")
    before = {path: path.stat().st_size for path in tmp_path.rglob("*")}
    dataset, _ = ready(load_from_disk(tmp_path / "set"))
    assert dataset[7]["images"][0].mode == "RGB"
    assert {path: path.stat().st_size for path in tmp_path.rglob("*")} == before
    assert dataset.select([3, 5])[1]["images"][0].size == (60, 44)


def test_messages_that_arrow_filled_with_none_come_out_clean():
    stored = [[{"role": "user", "content": [{"type": "image", "image": None}, {"type": "text", "text": "q"}]}]] * 2
    dataset = Dataset.from_dict({"prompt": stored, "images": [[jpeg()], [jpeg(1)]], "solution": ["1", "2"]})
    assert dataset[0]["prompt"][0]["content"][1]["image"] is None  # what Arrow made of it
    row = ready(dataset)[0][0]
    assert row["prompt"][0]["content"] == [{"type": "image"}, {"type": "text", "text": "q"}]


def test_counts_are_kept_per_row_and_no_images_is_an_empty_list():
    dataset, _ = ready(several([[0], [1, 2, 3], None, []]))
    assert [len(row["images"]) for row in dataset] == [1, 3, 0, 0]
    assert [count_images(row["prompt"]) for row in dataset] == [1, 3, 0, 0]
    assert dataset[2]["images"] == dataset[3]["images"] == []


@pytest.mark.parametrize("kind", ["grpo", "mpo"])
def test_streaming_sets_give_the_same_rows(kind):
    extra = {"chosen": ["a"] * 4, "rejected": ["b"] * 4} if kind == "mpo" else {}
    dataset = single(**extra)
    lazily, _ = ready(dataset, kind, style="direct")
    streamed, _ = ready(dataset.to_iterable_dataset(), kind, style="direct")
    for one, other in zip(lazily, streamed, strict=True):
        assert one["prompt"] == other["prompt"]
        assert np.array_equal(np.asarray(one["images"][0]), np.asarray(other["images"][0]))
        assert [one[name] for name in extra] == [other[name] for name in extra]


def bad_rows() -> Dataset:
    stored = [{"bytes": jpeg(i), "path": None} for i in range(5)]
    stored[1] = {"bytes": b"no picture", "path": None}
    stored[3] = {"bytes": None, "path": "../../etc/x.png"}
    problems = ["Q?", "Q?", "Q? <image> <image>", "Q?", "Q?"]
    data = {"image": stored, "problem": problems, "answer": ["1", "1", "1", "1", ""]}
    return Dataset.from_dict(data).cast_column("image", Image(decode=False))


@pytest.mark.parametrize("streaming", [False, True])
def test_bad_rows_are_raised_or_counted_and_named(streaming, capsys):
    dataset = bad_rows().to_iterable_dataset() if streaming else bad_rows()
    with pytest.raises(RowError, match="row 1, column 'images': cannot be decoded"):
        list(ready(dataset)[0])
    kept, skipped = ready(dataset, on_error="skip", source=Source(root="/tmp"))
    assert [row["prompt"][-1]["content"][-1]["text"] for row in kept] == ["Q?"]
    assert [(error.row_id, error.column) for error in skipped] == [
        (1, "images"),
        (2, "prompt"),
        (3, "images"),
        (4, "solution"),
    ]
    if not streaming:
        assert "4 of 5 rows left out; the first: row 1" in capsys.readouterr().out
    with pytest.raises(ValueError, match="on_error='ignore'"):
        ready(dataset, on_error="ignore")


def test_pixels_that_break_behind_a_good_header_name_their_row_when_read():
    buffer = io.BytesIO()
    PILImage.effect_noise((60, 60), 90).convert("RGB").save(buffer, "WEBP", lossless=True)
    data = bytearray(buffer.getvalue())
    data[40:-4] = b"\xff" * (len(data) - 44)  # as long as its header says, and nonsense inside
    stored = [{"bytes": jpeg(), "path": None}, {"bytes": bytes(data), "path": None}]
    columns_ = {"id": ["a", "b"], "image": stored, "problem": ["Q?"] * 2, "answer": ["1"] * 2}
    dataset, _ = ready(Dataset.from_dict(columns_).cast_column("image", Image(decode=False)))
    with pytest.raises(RowError, match="row b, column 'images': cannot be decoded"):
        dataset[1]


def test_a_file_cut_in_half_is_found_while_getting_ready():
    stored = [{"bytes": jpeg(), "path": None}, {"bytes": jpeg(0, 300, 300)[:1500], "path": None}]
    dataset = Dataset.from_dict({"image": stored, "problem": ["Q?"] * 2, "answer": ["1"] * 2})
    kept, skipped = ready(dataset.cast_column("image", Image(decode=False)), on_error="skip")
    assert (len(kept), [error.row_id for error in skipped]) == (1, [1])


def test_pictures_of_a_folder_are_read_from_it_alone(tmp_path):
    (tmp_path / "x.jpg").write_bytes(jpeg())
    dataset = Dataset.from_dict({"image": ["x.jpg"], "problem": ["Q?"], "answer": ["1"]})
    assert ready(dataset, source=Source(root=tmp_path))[0][0]["images"][0].size == (60, 44)
    with pytest.raises(RowError, match="no folder was allowed"):
        ready(dataset)


# --- through TRL's own trainers -------------------------------------------------------------------

MIXES = {
    "none first": [None, [0]],
    "empty last": [[0], []],
    "1, 3 and 0": [[0], [1, 2, 3], []],
    "2, 1 and 0": [[0, 1], [2], []],  # as many images as rows
    "two each": [[0, 1], [2, 3]],
    "none at all": [None, []],
}


def pairs(images: list) -> Dataset:
    answers = {"chosen": ["yes it is"] * len(images), "rejected": ["no"] * len(images)}
    return ready(several(images, **answers), "mpo")[0]


def train_dpo(family: str, dataset: Dataset, folder, **settings):
    processor = tiny_families.processor(family)
    model, reference = (tiny_families.model(family, processor) for _ in range(2))
    options = {"report_to": [], "use_cpu": True, "max_steps": 1, "save_strategy": "no", "bf16": False}
    options |= {"per_device_train_batch_size": len(dataset), "max_length": None, "disable_tqdm": True}
    config = DPOConfig(output_dir=str(folder), **options | settings)
    trainer = DPOTrainer(model, reference, args=config, train_dataset=dataset, processing_class=processor)
    return trainer, trainer.train()


@pytest.mark.slow
@pytest.mark.parametrize("family", tiny_families.FAMILIES)
def test_rows_of_any_count_train_through_dpo(family, tmp_path):
    """Trained where the first row, by which TRL tells a vision set, has no image; each row scores as it does alone."""
    # with unused columns removed, as is the default: the transform needs nothing but TRL's columns
    trainer, result = train_dpo(family, pairs(MIXES["none first"]), tmp_path)
    assert np.isfinite(result.training_loss)
    model = trainer.model.eval()

    def logits(rows: list[dict]) -> list[torch.Tensor]:
        batch = trainer.data_collator([dict(row) for row in rows])  # it puts the images into the caller's rows
        batch.pop("completion_mask")
        with torch.no_grad():
            scores = model(**batch).logits
        return [row[kept.bool()] for row, kept in zip(scores, batch["attention_mask"])]

    for name in ("1, 3 and 0", "2, 1 and 0", "none at all"):
        rows = list(pairs(MIXES[name]))
        together = logits(rows)
        for place, row in enumerate(rows):
            assert row["images"] is not None  # DPO's collator takes [] for no image, and fails on None
            chosen, rejected = logits([row])
            assert torch.allclose(together[place], chosen, atol=1e-4), (name, place)
            assert torch.allclose(together[len(rows) + place], rejected, atol=1e-4), (name, place)


@pytest.mark.slow
@pytest.mark.parametrize("family", tiny_families.FAMILIES)
def test_rows_of_any_count_train_through_grpo(family, tmp_path):
    """TRL's own trainer fails on each of these batches of two: `trainers.GRPOTrainer` says why."""
    processor = tiny_families.processor(family)
    batches = ["none first", "empty last", "two each", "none at all"]
    dataset, _ = ready(several([images for name in batches for images in MIXES[name]]))
    options = {"report_to": [], "use_cpu": True, "save_strategy": "no", "bf16": False, "disable_tqdm": True}
    options |= {"per_device_train_batch_size": 4, "num_generations": 2, "max_completion_length": 3}
    trainer = trainers.GRPOTrainer(
        tiny_families.model(family, processor),
        lambda completions, **columns: [float(place % 2) for place in range(len(completions))],
        args=GRPOConfig(output_dir=str(tmp_path), max_steps=len(batches), shuffle_dataset=False, **options),
        train_dataset=dataset,
        processing_class=processor,
    )
    assert np.isfinite(trainer.train().training_loss)


@pytest.mark.parametrize("family", ["qwen2.5-vl", "smolvlm"])
def test_each_row_keeps_its_own_pixels_through_the_collator(family, tmp_path):
    """Two images a row: what the collator makes of two rows is what the processor makes of each alone."""
    dataset = pairs(MIXES["two each"])
    processor = tiny_families.processor(family)
    trainer, _ = train_dpo(family, dataset, tmp_path, gradient_accumulation_steps=2)
    batch = trainer.data_collator([dataset[0], dataset[1]])
    alone = [
        processor(
            text=[processor.apply_chat_template(build_prompt("Hi?", 2), add_generation_prompt=True)],
            images=[dataset[i]["images"]],
            return_tensors="pt",
        )["pixel_values"]
        for i in (0, 1)
    ]
    step = len(alone[0])
    for place, own in enumerate([*alone, *alone]):  # chosen and rejected share the prompts
        assert np.allclose(batch["pixel_values"][place * step : (place + 1) * step], own, atol=1e-6)
