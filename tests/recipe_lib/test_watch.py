"""What a person watches: warnings that fire and stay silent, spread within groups, gallery, tables, trackio."""

import os
import re
import sqlite3
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image
from transformers import TrainerState
from trl import GRPOConfig

from data_scripts import tiny_families
from recipe_lib import datasets, gallery, models, trainers, watch

HEALTHY = {
    "frac_reward_zero_std": 0.4,
    "completions/clipped_ratio": 0.02,
    "kl": 0.05,
    "rewards/accuracy_reward/mean": 0.5,
    "rewards/accuracy_reward/std": 0.5,
}


def feed(entries, steps_an_entry=1):
    """Feed log entries to a fresh callback and return what it said."""
    warnings, state = watch.Warnings(), TrainerState(is_world_process_zero=True)
    for i, entry in enumerate(entries):
        state.global_step = (i + 1) * steps_an_entry
        warnings.on_log(None, state, None, logs=dict(entry))
    return warnings.said


def test_healthy_run_is_silent(capsys):
    rng = np.random.default_rng(0)
    runs = [{key: value * rng.uniform(0, 1.9) for key, value in HEALTHY.items()} for _ in range(200)]
    assert feed(runs) == {} and capsys.readouterr().out == ""


SICK = {
    "no spread": ({"frac_reward_zero_std": 1.0}, 10, "temperature"),
    "cut off": ({"completions/clipped_ratio": 1.0}, 5, "max_completion_length"),
    "KL runs away": ({"kl": 3.0}, 5, "learning_rate"),
    "silent accuracy_reward": (
        {"rewards/accuracy_reward/mean": 0.0, "rewards/accuracy_reward/std": 0.0},
        20,
        "warm-start",
    ),
}


@pytest.mark.parametrize("name", SICK)
def test_each_warning_fires_in_time_once_and_says_what_to_change(name, capsys):
    sick, patience, remedy = SICK[name]
    assert feed([HEALTHY | sick] * (patience - 1)) == {}
    # a healthy entry in between starts the count anew
    assert feed([HEALTHY | sick] * (patience - 1) + [HEALTHY] + [HEALTHY | sick] * (patience - 1)) == {}
    capsys.readouterr()
    said = feed([HEALTHY | sick] * (patience + 30))
    assert list(said) == [name] and remedy in said[name] and f"at step {patience}:" in said[name]
    assert capsys.readouterr().out.count("Warning") == 1


def test_entries_between_rollouts_do_not_count_against_a_sign():
    """Under GSPO three entries in four are of steps without a rollout: they say nothing of rewards."""
    rollout = {"frac_reward_zero_std": 1.0}
    assert "no spread" in feed([rollout, {"loss": 0.1}, {"loss": 0.1}, {"loss": 0.1}] * 4)


def test_rare_logging_counts_steps_and_not_entries():
    assert "no spread" in feed([{"frac_reward_zero_std": 1.0}] * 2, steps_an_entry=5)


def test_a_reward_that_always_abstains_is_silent_too():
    said = feed([{"rewards/judge/mean": None, "rewards/judge/std": None}] * 20)
    assert "reward judge" in said["silent judge"]


def test_spread_is_within_groups():
    nan = float("nan")
    assert watch.spread_within_groups([0, 0, 1, 1], 2) == 0  # questions differ, answers do not
    assert watch.spread_within_groups([0, 1, 0, 1], 2) == pytest.approx(np.std([0, 1], ddof=1))
    assert watch.spread_within_groups([0, 1, nan, nan, nan, 1], 2) == pytest.approx(np.std([0, 1], ddof=1))
    assert np.isnan(watch.spread_within_groups([nan, nan], 2))


def test_page_is_complete_and_safe(tmp_path):
    picture = Image.new("RGB", (1200, 900), "red")
    prompt = [{"role": "user", "content": [{"type": "image", "image": picture}, {"type": "text", "text": "a < b?"}]}]
    answers = [[{"role": "assistant", "content": text}] for text in ("<script>alert(1)</script>", "no")]
    path = gallery.write_page(
        tmp_path / "a" / "page.html",
        "Step 1",
        [prompt] * 4,
        answers * 2,
        {"accuracy": [1.0, float("nan"), 0.0, 0.5]},
        [0.7, -0.7, 0.0, 0.0],
        num_generations=2,
        groups=1,
    )
    page = path.read_text()
    assert "<script>" not in page and "&lt;script&gt;" in page and "a &lt; b?" in page
    assert page.count("data:image/png;base64,") == 1 and page.count('class="up"') == page.count('class="down"') == 1
    assert "+0.70" in page and "<td>–</td>" in page and "1 of 2 groups" in page
    assert not re.search(r"(src|href)=.?(http|//)", page) and len(page) < 50_000


def test_markdown_cells_keep_tags_and_bars():
    table = watch.markdown_table(["q\nlast"], ["<answer>a|b</answer>\n"], {"accuracy": [None]}, [0.5])
    assert table.splitlines()[2] == "| last | &lt;answer&gt;a&#124;b&lt;/answer&gt;<br> | – | +0.50 |"


def run(folder, tmp_path, *, steps=3, every=2, **settings):
    """A few real steps of a tiny random model, watched."""
    made = tiny_families.save("smolvlm", tmp_path / "model")
    model, processor = models.load(str(made))
    config = GRPOConfig(
        output_dir=str(folder),
        max_steps=steps,
        per_device_train_batch_size=8,
        num_generations=4,
        max_completion_length=8,
        gradient_checkpointing=False,
        bf16=False,
        logging_steps=1,
        save_strategy="no",
        **settings,
    )
    trainer = trainers.GRPOTrainer(
        model=model,
        reward_funcs=[lengths, never],
        args=config,
        train_dataset=datasets.load("digits", "train", limit=8),
        processing_class=processor,
    )
    warnings = watch.attach(trainer, every=every, groups=1)
    trainers.train(trainer)
    return trainer, warnings


def lengths(completions, **columns):
    return [float(len(completion[0]["content"])) for completion in completions]


def never(completions, **columns):
    return [0.0] * len(completions)


@pytest.mark.slow
def test_real_run_is_watched(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(watch, "SILENT_REWARD", 3)
    trainer, warnings = run(tmp_path / "run", tmp_path, report_to="tensorboard", beta=0.01)
    logged = [entry for entry in trainer.state.log_history if "reward" in entry]
    assert len(logged) == 3 and all(entry["spread/never"] == 0 for entry in logged)
    assert all(entry["spread/lengths"] > 0 for entry in logged)
    for key in ("frac_reward_zero_std", "completions/mean_length", "clip_ratio/region_mean", "kl", "entropy"):
        assert key in logged[0], key
    assert list(warnings.said) == ["silent never"] and "reward never" in capsys.readouterr().out

    pages = sorted(path.name for path in (tmp_path / "run" / "gallery").iterdir())
    assert pages == ["step_00002.html", "step_00003.html"]
    page = (tmp_path / "run" / "gallery" / pages[0]).read_text()
    assert "lengths" in page and "data:image/png" in page and page.count("<tr class") == 4

    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(next((tmp_path / "run").rglob("events.out*")).parent)).Reload()
    table = events.Tensors("completions/text_summary")
    assert [event.step for event in table] == [2, 3]
    assert b"| prompt | completion | lengths | never | advantage |" in table[0].tensor_proto.string_val[0]


TRACKIO_RUN = """
from pathlib import Path
from tests.recipe_lib.test_watch import run
folder = Path({folder!r})
run(folder / "run", folder, steps=1, report_to="trackio", log_completions=True, project="watch-test")
"""


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_trackio_gets_completions_with_pictures(root, tmp_path):
    """In a process of its own: trackio reads its folder from the environment, once."""
    pytest.importorskip("trackio")
    folder = tmp_path / "trackio"
    environment = {**os.environ, "TRACKIO_DIR": str(folder), "HF_HUB_OFFLINE": "1", "PYTHONPATH": str(root)}
    script = TRACKIO_RUN.format(folder=str(tmp_path))
    subprocess.run([sys.executable, "-c", script], check=True, cwd=tmp_path, env=environment)
    databases = list(folder.rglob("*.db"))
    assert databases, "trackio wrote no database"
    with sqlite3.connect(databases[0]) as connection:
        tables = [row[0] for row in connection.execute("select name from sqlite_master where type='table'")]
        stored = "\n".join(str(row) for name in tables for row in connection.execute(f'select * from "{name}"'))
    assert "completions" in stored and "spread/lengths" in stored
    assert list(folder.rglob("*.png")), "no picture beside the table"


def test_pages_that_are_no_step_apart_are_refused():
    watch.check_every(1)
    with pytest.raises(ValueError, match=r"gallery_every=0: .*gallery_every: 25 would do"):
        watch.check_every(0)
