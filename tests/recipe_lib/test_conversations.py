"""Messages, and where images stand in them, down to the tokens that each family's template and processor make."""

from __future__ import annotations

import copy

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from trl.data_utils import prepare_multimodal_messages

from data_scripts import tiny_families
from recipe_lib import conversations
from recipe_lib.conversations import build_prompt, grpo_row, inline_images, mpo_row, normalize_messages
from recipe_lib.image_sources import RowError

IMAGE, SYSTEM = {"type": "image"}, "Be brief."


def text(words: str) -> dict:
    return {"type": "text", "text": words}


def user(*parts) -> dict:
    return {"role": "user", "content": list(parts)}


def picture(width: int = 60, height: int = 40) -> Image.Image:
    return Image.new("RGB", (width, height), (90, 20, 160))


# --- markers --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("question", "count", "parts"),
    [
        ("Find x.", 1, [IMAGE, text("Find x.")]),
        ("Find x.", 0, [text("Find x.")]),
        ("Which?", 3, [IMAGE, IMAGE, IMAGE, text("Which?")]),
        ("<image>\nFind x.", 1, [IMAGE, text("Find x.")]),
        ("Find x.\n<image>", 1, [text("Find x."), IMAGE]),
        ("Find x in <image>.", 1, [text("Find x in "), IMAGE, text(".")]),
        ("<image>\n<image> Compare.", 2, [IMAGE, IMAGE, text("Compare.")]),
        ("Is <image> like\n<image>\nor not?", 2, [text("Is "), IMAGE, text(" like\n"), IMAGE, text("\nor not?")]),
        ("<image>a<image>", 2, [IMAGE, text("a"), IMAGE]),
    ],
)
def test_images_stand_where_the_author_put_them(question, count, parts):
    assert build_prompt(question, count) == [user(*parts)]


@pytest.mark.parametrize(("question", "count"), [("<image>\nFind x.", 0), ("<image><image>x", 1), ("<image>x", 2)])
def test_a_count_that_differs_raises_with_the_row(question, count):
    with pytest.raises(RowError, match=rf"row r3, column 'prompt': .* for {count} images; make the two equal"):
        build_prompt(question, count, row_id="r3")


@pytest.mark.parametrize(
    "words",
    [
        "<|image_pad|>",
        "<|vision_start|>",
        "<|video_pad|>",
        "<start_of_image>",
        "<image_soft_token>",
        "<row_1_col_2>",
        "<global-img>",
        "<fake_token_around_image>",
        "<image_1>",
        "<image-2>",
        "<|image_3|>",
    ],
)
def test_a_processors_own_tokens_in_a_text_are_refused(words):
    with pytest.raises(RowError, match="in the text; write <image> where an image stands"):
        build_prompt(f"What is {words} here?", 1)


@pytest.mark.parametrize("question", ["", "  \n", None, 5])
def test_an_empty_question_is_refused(question):
    with pytest.raises(RowError, match="the question is empty"):
        build_prompt(question, 1, row_id=4)


def test_the_system_prompt_is_one_turn_with_one_text():
    own = [{"role": "system", "content": [text("a"), text("b")]}, user(text("Q"))]
    messages = grpo_row({"prompt": own, "images": []}, SYSTEM)["prompt"]
    assert messages == [{"role": "system", "content": [text(f"ab\n\n{SYSTEM}")]}, user(text("Q"))]
    assert build_prompt("Q", 0, SYSTEM)[0] == {"role": "system", "content": [text(SYSTEM)]}


# --- messages of others ---------------------------------------------------------------------------


def test_null_filled_parts_hold_one_image_and_no_none():
    filled = [user({"type": "image", "image": None, "text": None}, {"type": "text", "text": "q", "image": None})]
    messages = normalize_messages(filled, 1)
    assert messages == [user(IMAGE, text("q"))]
    assert inline_images(filled) == []
    prepared = prepare_multimodal_messages(messages, images=[picture()])
    assert sum(part["type"] == "image" for part in prepared[0]["content"]) == 1


def test_structured_then_string_turns_have_one_image():
    turns = [user(IMAGE, text("a")), {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"}]
    messages = normalize_messages(turns, 1)
    assert conversations.count_images(messages) == 1
    assert [message["content"] for message in messages] == [[IMAGE, text("a")], [text("b")], [text("c")]]
    prepare_multimodal_messages(messages, images=[picture()])  # raises on the raw turns


def test_markers_may_stand_in_several_turns():
    turns = [
        {"role": "user", "content": "<image> first"},
        {"role": "assistant", "content": "yes"},
        {"role": "user", "content": "and <image>?"},
    ]
    assert [len(message["content"]) for message in normalize_messages(turns, 2)] == [2, 1, 3]


def test_parts_with_a_marker_too_many_are_refused():
    with pytest.raises(RowError, match="2 image places"):
        normalize_messages([user(IMAGE, text("<image>\nFind x."))], 1)


@pytest.mark.parametrize("role", ["system", "assistant"])
def test_images_outside_the_users_turns_are_refused(role):
    with pytest.raises(RowError, match=f"an image in a turn of the {role}"):
        grpo_row({"prompt": [{"role": role, "content": [IMAGE]}, user(text("Q"))], "images": [b"x"]}, SYSTEM)


@pytest.mark.parametrize("role", ["system", "assistant"])
def test_markers_outside_the_users_turns_are_refused(role):
    with pytest.raises(RowError, match=f"in a turn of the {role}"):
        normalize_messages([{"role": role, "content": "see <image>"}, user(text("Q"))], 1)


def test_pictures_inside_the_messages_are_found():
    first, second = picture(10, 10), "data:image/png;base64,AAAA"
    turns = [
        user({"type": "image", "image": first}, text("and")),
        user({"type": "image_url", "image_url": {"url": second}}, text("Q")),
    ]
    row = grpo_row({"prompt": turns})
    assert row["images"] == [first, {"url": second}]
    assert conversations.count_images(row["prompt"]) == 2
    with pytest.raises(RowError, match="both in the column 'images' and inside"):
        grpo_row({"prompt": turns, "images": [first]})


@pytest.mark.parametrize(
    "messages",
    [
        [], None, 3, [None], ["text"], [{}], [{"role": "tool", "content": "x"}], [{"role": "user"}],
        [user()], [user(text(""))], [user(7)], [user({"type": "video"})], [user({"type": "text", "text": 3})],
    ],
)  # fmt: skip
def test_what_is_no_conversation_is_refused_by_row(messages):
    with pytest.raises(RowError, match="row 9, column 'prompt'"):
        normalize_messages(messages, 0, row_id=9)


def test_a_prompt_must_end_with_the_user():
    with pytest.raises(RowError, match="ends with a turn of the assistant"):
        grpo_row({"prompt": [user(text("Q")), {"role": "assistant", "content": "A"}]})


def test_the_callers_messages_are_left_alone():
    turns = [user({"type": "image", "text": None}, text("a")), {"role": "user", "content": "<image> b"}]
    before = copy.deepcopy(turns)
    normalize_messages(turns, 2)
    grpo_row({"prompt": turns, "images": [picture(), picture()]}, SYSTEM)
    assert turns == before


# --- rows -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("images", "count"), [(None, 0), ([], 0), ([None], 0), (b"x", 1), ({"bytes": b"x"}, 1), ([b"x", b"y", b"z"], 3)]
)
def test_any_number_of_images_a_row(images, count):
    row = grpo_row({"prompt": "Q", "images": images, "solution": "1", "kind": "k"})
    assert len(row["images"]) == conversations.count_images(row["prompt"]) == count
    assert (row["solution"], row["kind"]) == ("1", "k")
    assert len(mpo_row({"prompt": "Q", "images": images, "chosen": "a", "rejected": "b"})["images"]) == count


ANSWER = [{"role": "assistant", "content": [text("yes")]}]


@pytest.mark.parametrize(
    "chosen",
    [
        "yes",
        [{"role": "assistant", "content": "yes"}],
        [{"role": "assistant", "content": [text("yes")]}],
        [{"role": "assistant", "content": [{"type": "text", "text": "yes", "image": None}]}],
        [{"role": "user", "content": "Q"}, {"role": "assistant", "content": "yes"}],
        {"role": "assistant", "content": "yes"},
    ],
)
def test_answers_of_every_shape_become_one_assistant_turn(chosen):
    row = mpo_row({"prompt": "Q", "images": [b"x"], "chosen": chosen, "rejected": "no"})
    assert row["chosen"] == ANSWER
    assert row["prompt"] == [user(IMAGE, text("Q"))]


def test_a_prompt_inside_the_answers_is_taken_out():
    chosen = [{"role": "user", "content": "<image>Q"}, {"role": "assistant", "content": "yes"}]
    rejected = [{"role": "user", "content": "<image>Q"}, {"role": "assistant", "content": "no"}]
    row = mpo_row({"images": [b"x"], "chosen": chosen, "rejected": rejected})
    assert row["prompt"] == [user(IMAGE, text("Q"))]
    assert row["chosen"] == ANSWER


@pytest.mark.parametrize(
    ("answers", "column", "words"),
    [
        ({"chosen": "a", "rejected": "a"}, "chosen", "equals 'rejected'"),
        ({"chosen": "a", "rejected": [{"role": "assistant", "content": "a"}]}, "chosen", "equals 'rejected'"),
        ({"chosen": "", "rejected": "a"}, "chosen", "the answer is empty"),
        ({"chosen": "a", "rejected": None}, "rejected", "the answer is empty"),
        ({"chosen": "a", "rejected": []}, "rejected", "a part|the answer is empty"),
        ({"chosen": "see <image>", "rejected": "a"}, "chosen", "in a turn of the assistant"),
        ({"chosen": "<|image_pad|>", "rejected": "a"}, "chosen", "in the text"),
        (
            {"chosen": [{"role": "assistant", "content": [IMAGE]}], "rejected": "a"},
            "chosen",
            "an image in a turn of the assistant",
        ),
    ],
)
def test_bad_answers_are_refused_by_row_and_column(answers, column, words):
    with pytest.raises(RowError, match=words) as caught:
        mpo_row({"prompt": "Q", **answers}, row_id="p1")
    assert str(caught.value).startswith(f"row p1, column '{column}'")


# --- against the real templates and processors ----------------------------------------------------

FAMILIES = tuple(tiny_families.FAMILIES)
REORDERED = ("llava-next",)  # its template puts a turn's images first, wherever the parts stand


@pytest.mark.parametrize("family", FAMILIES)
def test_the_template_shows_each_image_once_and_in_its_place(family):
    processor = tiny_families.processor(family)
    messages = build_prompt("Is <image> like <image> or not?", 2, SYSTEM)
    prompt = processor.apply_chat_template(messages, add_generation_prompt=True)
    assert prompt.count(processor.image_token) == 2
    assert SYSTEM in prompt
    places = [prompt.index("Is"), prompt.index(processor.image_token), prompt.index("like"), prompt.index("or not?")]
    assert (places == sorted(places)) is (family not in REORDERED)
    assert "<image>" not in prompt.replace(processor.image_token, "")


@pytest.mark.parametrize("family", FAMILIES)
def test_the_processor_takes_rows_of_1_3_and_0_images(family):
    processor = tiny_families.processor(family)
    rows = [grpo_row({"prompt": "What is shown?", "images": [picture()] * n}, SYSTEM) for n in (1, 3, 0)]
    prompts = [processor.apply_chat_template(row["prompt"], add_generation_prompt=True) for row in rows]
    images = [row["images"] for row in rows]
    batch = processor(text=prompts, images=images, padding=True, padding_side="left", return_tensors="pt")
    token = getattr(processor.tokenizer, "image_token_id", None) or processor.image_token_id
    counts = (batch["input_ids"] == token).sum(dim=1).tolist()
    assert counts[1] == 3 * counts[0] > 0
    assert counts[2] == 0


@pytest.mark.parametrize("family", FAMILIES)
def test_null_filled_messages_give_the_same_ids_as_clean_ones(family):
    processor = tiny_families.processor(family)
    filled = [user({"type": "image", "image": None, "text": None}, {"type": "text", "text": "q", "image": None})]
    cleaned, clean = normalize_messages(filled, 1), build_prompt("q", 1)
    assert cleaned == clean
    prompts = [processor.apply_chat_template(messages, add_generation_prompt=True) for messages in (cleaned, clean)]
    assert prompts[0] == prompts[1]
    assert prompts[0].count(processor.image_token) == 1


def test_gemma_marks_image_tokens_in_token_type_ids():
    processor = tiny_families.processor("gemma3")
    prompt = processor.apply_chat_template(build_prompt("What?", 1, SYSTEM), add_generation_prompt=True)
    batch = processor(text=[prompt], images=[[picture()]], return_tensors="pt", add_special_tokens=False)
    marked = batch["input_ids"][batch["token_type_ids"] == 1]
    assert set(marked.tolist()) == {processor.tokenizer.image_token_id}
    assert len(marked) == processor.image_seq_length


def test_llava_loses_string_content_which_never_leaves_here():
    template = tiny_families.processor("llava-next")
    raw = [{"role": "user", "content": "What?"}]
    try:
        assert "What?" not in template.tokenizer.apply_chat_template(
            raw, chat_template=template.chat_template, tokenize=False
        )
    except Exception as error:  # other releases of jinja2 refuse it
        assert "type" in str(error)
    assert "What?" in template.apply_chat_template(normalize_messages(raw, 0))


def test_unequal_prompts_are_padded_on_one_side():
    processor = tiny_families.processor("qwen2.5-vl")
    rows = [build_prompt("Q?", 1), build_prompt("What is shown in the picture, and what is not?", 2)]
    prompts = [processor.apply_chat_template(row, add_generation_prompt=True) for row in rows]
    images = [[picture()], [picture(), picture(80, 80)]]
    for side in ("left", "right"):
        batch = processor(text=prompts, images=images, padding=True, padding_side=side, return_tensors="pt")
        padding = batch["attention_mask"][0] == 0
        assert padding.any()
        assert padding[0 if side == "left" else -1]
        assert (batch["mm_token_type_ids"][0][padding] == 0).all()
        is_image = batch["input_ids"] == processor.image_token_id
        assert ((batch["mm_token_type_ids"] == 1) == is_image).all()


@pytest.mark.parametrize("family", FAMILIES)
def test_a_processor_called_twice_leaves_the_callers_lists_alone(family):
    processor = tiny_families.processor(family)
    prompts = [processor.apply_chat_template(build_prompt("Q?", 2), add_generation_prompt=True)]
    images = [[picture(), picture(30, 90)]]
    kept, words = [list(inner) for inner in images], list(prompts)
    first = processor(text=prompts, images=images, return_tensors="pt")["input_ids"]
    second = processor(text=prompts, images=images, return_tensors="pt")["input_ids"]
    assert first.tolist() == second.tolist()
    assert prompts == words
    assert [[image is other for image, other in zip(a, b)] for a, b in zip(images, kept)] == [[True, True]]


# --- anything at all ------------------------------------------------------------------------------

LEAVES = st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=12), st.sampled_from(["<image>", "user"]))
KEYS = st.sampled_from(["role", "content", "type", "text", "image", "image_url"])
ANY = st.recursive(
    LEAVES, lambda x: st.one_of(st.lists(x, max_size=3), st.dictionaries(KEYS, x, max_size=4)), max_leaves=8
)
PART = st.fixed_dictionaries({"type": st.sampled_from(["text", "image", "video", None])}, optional={"text": LEAVES})
TURN = st.fixed_dictionaries(
    {
        "role": st.sampled_from(["user", "system", "assistant", "tool"]),
        "content": st.one_of(ANY, st.lists(PART, max_size=3)),
    }
)


@settings(max_examples=600, deadline=None)
@given(st.one_of(ANY, st.lists(TURN, max_size=3)), st.integers(0, 2), ANY)
def test_random_rows_give_a_prompt_or_a_named_error(messages, count, answer):
    row = {"prompt": messages, "images": [b"x"] * count, "chosen": answer, "rejected": "no"}
    for make in (grpo_row, mpo_row):
        try:
            made = make(row, SYSTEM, row_id=3)
        except RowError as error:
            assert str(error).startswith("row 3, column '")
        else:
            assert conversations.count_images(made["prompt"]) == len(made["images"])
