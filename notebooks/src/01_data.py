# %% [markdown]
# # Data: from any set to rows that train
#
# **What you will learn**
# - what a row must look like, and how pictures and text meet in a prompt;
# - the mistakes that cost most time, one wrong row after another: what breaks, how it is seen, how it is mended;
# - what a picture costs in tokens, and where each of its tokens looks.
#
# Nothing is trained here. Everything that goes wrong below would otherwise go wrong on a GPU, an hour in.
#
# **Hardware and time**: two CPU cores, about 1 minute, under 2 GB of memory.

# %% [markdown]
# ## Parameters

# %% tags=["parameters"]
MODEL = "tiny-qwen2.5-vl"
DATASET = "digits"
N_ROWS = 400
N_FAULTS = 40
MAX_TOKENS = 2000
SEED = 0
OUTPUT_DIR = "outputs/01_data"

# %%
from recipe_lib.parameters import check_parameters

check_parameters(globals())

# %% [markdown]
# ## Data
#
# A row for GRPO has a `prompt` (messages), `images` (a list, possibly empty) and a `solution`. A picture grid
# first: always look at the rows before anything else looks at them.

# %%
from recipe_lib import datasets, models, reports

train_set = datasets.load(DATASET, "train", limit=200)
reports.show_rows(train_set)

# %% [markdown]
# The messages say where each picture stands: a part `{"type": "image"}`. The chat template turns that part into
# one image token, and the processor replaces it by as many as the picture needs.

# %%
model, processor = models.load(MODEL)
row = train_set[0]
print(row["prompt"], "\n")
prompt = processor.apply_chat_template(row["prompt"], add_generation_prompt=True)
print(prompt)

# %%
ids = processor(text=[prompt], images=[row["images"]])["input_ids"][0]
n_image = sum(i == processor.image_token_id for i in ids)
print(f"{len(ids)} tokens, {n_image} of them for one picture of {row['images'][0].size} pixels")

# %% [markdown]
# ## Wrong rows
#
# ### The picture
#
# A set holds pictures as bytes, paths, dicts, base64 or arrays. `to_rgb` takes all of them, and gives one upright
# RGB picture. Three things often go wrong in silence: a photo lies on its side, a black drawing on a transparent
# ground turns all black, and a 16-bit picture turns all white.

# %%
import io

import matplotlib.pyplot as plt
import numpy as np
from PIL import Image, ImageDraw

from recipe_lib.images import to_rgb


def save(image, kind="PNG", **options):
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


exif = Image.Exif()
exif[0x0112] = 6  # "the camera was held upright"
photo = Image.new("RGB", (90, 60), "skyblue")
ImageDraw.Draw(photo).polygon([(0, 60), (45, 10), (90, 60)], fill="seagreen")
drawing = Image.new("RGBA", (90, 60), (0, 0, 0, 0))
ImageDraw.Draw(drawing).ellipse((20, 5, 70, 55), outline=(0, 0, 0, 255), width=4)
depth = Image.fromarray(np.linspace(0, 65535, 90 * 60).astype(np.uint16).reshape(60, 90))
stored = {
    "photo": save(photo.rotate(90, expand=True), "JPEG", exif=exif),
    "drawing": save(drawing),
    "16 bit": save(depth),
}

figure, axes = plt.subplots(2, 3, figsize=(7, 4))
for (name, data), above, below in zip(stored.items(), axes[0], axes[1]):
    above.imshow(Image.open(io.BytesIO(data)).convert("RGB"))
    above.set_title(f"{name}: convert('RGB')")
    below.imshow(to_rgb({"bytes": data, "path": None}))
    below.set_title("to_rgb")
for axis in axes.flat:
    axis.axis("off")
figure.tight_layout()

# %% [markdown]
# A broken file, or one that claims a size that would fill the memory, is an error that names its row:

# %%
from recipe_lib.image_sources import RowError

for wrong in (
    stored["photo"][:500],
    b"",
    {"bytes": None, "path": None},
    "../../etc/passwd",
    "http://example.com/x.png",
):
    try:
        to_rgb(wrong, row_id="row-17")
    except RowError as error:
        print(error)

# %% [markdown]
# ### The marker
#
# Many sets write `<image>` into the text where a picture stands. Left there, it is a *second* picture for one
# model family, and three meaningless tokens for another. `build_prompt` puts the part where the marker stood.

# %%
from recipe_lib.conversations import build_prompt

print(build_prompt("Is <image> like <image>?", num_images=2)[0]["content"])
for question, count in (("<image>\nFind x.", 0), ("<image> or <image>?", 1), ("What does <|image_pad|> show?", 1)):
    try:
        build_prompt(question, count, row_id="row-18")
    except RowError as error:
        print(error)

# %% [markdown]
# ### What Arrow does to messages
#
# Saved to disk, all parts of all messages get all keys, filled with None. Qwen's template takes any part that has
# an `image` key for an image: the question below would get two image tokens for its one picture.

# %%
from datasets import Dataset

from recipe_lib.conversations import normalize_messages

parts = [{"type": "image", "image": None}, {"type": "text", "text": "What is this?"}]
filled = Dataset.from_dict({"prompt": [[{"role": "user", "content": parts}]]})[0]["prompt"]
print(filled)
if MODEL.startswith("tiny-qwen"):
    print("raw:  ", processor.apply_chat_template(filled).count(processor.image_token), "image tokens")
    mended = normalize_messages(filled, 1)
    print("mended:", processor.apply_chat_template(mended).count(processor.image_token), "image token")

# %% [markdown]
# ### The columns
#
# The trainer wants `prompt`, `images`, `solution`; sets say `problem`, `image`, `answer`. And rows that have been
# through a processor already, a common mistake, end in a `KeyError` far from its cause.

# %%
from recipe_lib.columns import find_columns

print(find_columns(["image", "problem", "answer"], "grpo"))
for names in (["image", "text"], ["input_ids", "attention_mask", "pixel_values"]):
    try:
        find_columns(names, "grpo")
    except ValueError as error:
        print(error)

# %% [markdown]
# ### All at once: the row checker
#
# Here is a set with known faults of every kind. The checker reads texts and picture headers only.
# On the command line: `python -m recipe_lib check DATASET --drop FOLDER`.

# %%
from data_scripts import faulty_rows
from recipe_lib.any_set import RawSet
from recipe_lib.checks import summary
from recipe_lib.faults import TokenCounter, examine
from recipe_lib.image_budget import NAMED_RULES

faulty, truth = faulty_rows.build(rows=N_ROWS, faults=N_FAULTS, side=96, seed=SEED)
report = examine(RawSet(faulty, name="faulty"), tokens=TokenCounter(NAMED_RULES["qwen2.5-vl-3b"], limit=MAX_TOKENS))
print(summary(report))

# %%
found = {(fault.number, fault.kind) for fault in report.faults}
print(
    f"{len(found & set(truth.items()))} of {len(truth)} seeded faults found, {len(found - set(truth.items()))} invented"
)

# %% [markdown]
# And the same set, made ready for a trainer: bad rows are left out, and said so. Nothing is decoded before it is
# read, and nothing is written.

# %%
from recipe_lib.columns import ready

clean, skipped = ready(faulty, "grpo", style="think_answer", on_error="skip")
print(clean[0]["prompt"][-1])

# %% [markdown]
# ## The reward by hand
#
# A gold that no reward can read teaches nothing, and a wrong one teaches the wrong thing. Both are found by asking
# the reward itself: does the gold, given as an answer, score 1?

# %%
from recipe_lib.golds import gold_fault
from recipe_lib.rewards import accuracy_reward

for gold in ("7", "\\frac{1}{2}", "???"):
    print(gold, accuracy_reward([f"<think>so</think><answer>{gold}</answer>"], solution=[gold]))
asked = build_prompt("Which angle?", 0)
print(gold_fault({"prompt": asked, "solution": "A", "worked": "... so the angle = C"}))

# %% [markdown]
# ## Plots
#
# What a picture costs follows from its size alone. Qwen's cost grows with the area up to a limit. SmolVLM cuts a
# picture into tiles after blowing it up, so that even a thumbnail costs 17 tiles, unless splitting is off.

# %%
from recipe_lib.image_budget import QwenRule, TilesRule

rules = {
    "Qwen2.5-VL, its own limits": QwenRule(),
    "Qwen2.5-VL, as trained here": NAMED_RULES["qwen2.5-vl-3b"],
    "SmolVLM, its own limits": TilesRule(longest_edge=1536, tile=384, tile_tokens=81),
    "SmolVLM, as trained here": NAMED_RULES["smolvlm-instruct"],
}
sides = list(range(32, 1600, 32))
figure, axis = plt.subplots(figsize=(7, 3.2))
for name, rule in rules.items():
    axis.plot(sides, [rule.tokens(side, side) for side in sides], label=name)
axis.set(xlabel="side of a square picture, pixels", ylabel="image tokens", yscale="log")
axis.legend(frameon=False)
figure.tight_layout()

# %% [markdown]
# Where each image token goes: one square of the resized picture each, in reading order.

# %%
from recipe_lib.image_budget import rule_for

picture = row["images"][0]
rule = rule_for(processor)
if isinstance(rule, QwenRule):
    width, height = rule.resized(*picture.size)
    columns, lines = width // rule.factor, height // rule.factor
else:  # tiles: the overview, which is the picture squeezed into a square
    width = height = rule.tile
    columns = lines = round(rule.tile_tokens**0.5)
figure, axis = plt.subplots(figsize=(4, 4))
axis.imshow(picture.resize((width, height)))
for number in range(columns * lines):
    x, y = number % columns * width / columns, number // columns * height / lines
    axis.add_patch(plt.Rectangle((x, y), width / columns, height / lines, fill=False, edgecolor="tab:red"))
    axis.text(x + 2, y + 10, number, color="tab:red", fontsize=8)
axis.set_title(f"{picture.size} -> {(width, height)}: {columns * lines} tokens")
_ = axis.axis("off")

# %% [markdown]
# **What can go wrong.** A prompt longer than the context is cut inside its image tokens, and the first step that
# meets it crashes: `image_budget.require_fit` finds such rows beforehand. Pictures in both splits make a gain look
# larger than it is: `check --against test` finds them by their pixels.

# %% [markdown]
# ## Record

# %%
from recipe_lib.record import peak_rss_mb, write_record

write_record(
    OUTPUT_DIR,
    notebook="01_data",
    method="check",
    model=MODEL,
    dataset=DATASET,
    seed=SEED,
    peak_rss_mb=peak_rss_mb(),
    rows_checked=report.rows,
    faults_seeded=len(truth),
    faults_found=len(found & set(truth.items())),
    faults_invented=len(found - set(truth.items())),
    prompt_tokens_median=int(np.median(report.tokens)),
)

# %% [markdown]
# ## What next
#
# - Check your own set: `python -m recipe_lib check FOLDER_OR_NAME --column prompt=question`.
# - Write it ready to train: `python -m data_scripts.prepare_any --from FOLDER_OR_NAME --output outputs/mine`.
# - Say what a good answer is: `02_rewards`.
