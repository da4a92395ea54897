"""Makes preference pairs out of questions, with the model at hand, in the two ways of the MPO paper (section 3.1).

    python -m data_scripts.make_preferences --model tiny-qwen2.5-vl --dataset digits --pairs outputs/pairs/digits
    python -m data_scripts.make_preferences --model qwen2.5-vl-3b --dataset geometry3k --pairs outputs/pairs/geo \\
        --sampling_backend vllm --samples 32 --pairs_per_question 15

- `--pair_method correctness`, for questions with a gold: sample answers, check them with the accuracy reward, pair
  right with wrong. An answer that was cut off or names no answer is a wrong one, as in the paper; a right one is
  chosen only where it is finished and well formed, since the generation loss teaches every word of it.
- `--pair_method drop_and_continue`, for questions without a gold (the paper's dropout next-token prediction): cut a
  sampled answer in half, and let the model go on from there without having seen the picture. The answer is chosen,
  the half-blind one rejected.

`answers.jsonl` in the folder grows batch by batch, so a run that was stopped goes on where it was. Parquet parts hold
the pairs: `prompt`, `images`, `chosen`, `rejected`, and in `origin` where each row comes from.
`datasets.load("outputs/pairs/digits")` loads them.
"""

from __future__ import annotations

import hashlib
import json
import math
import random
from dataclasses import dataclass, field
from pathlib import Path

from datasets import Dataset, Features, Image, List, Value
from tqdm.auto import tqdm
from transformers import HfArgumentParser, PreTrainedModel, ProcessorMixin

from data_scripts.prepare import TURNS
from data_scripts.samplers import Sampler, chat_text, transformers_sampler, vllm_sampler
from recipe_lib import datasets, models
from recipe_lib.answer_format import is_well_formed
from recipe_lib.images import encoded
from recipe_lib.rewards import accuracy_reward

METHODS = ("correctness", "drop_and_continue")
BACKENDS = ("transformers", "vllm")
PART_PAIRS = 500
ORIGIN = ("method", "model", "dataset", "split", "row", "solution")
FEATURES = Features(
    {
        "id": Value("string"),
        "prompt": TURNS,
        "images": List(Image()),
        "chosen": TURNS,
        "rejected": TURNS,
        "kind": Value("string"),
        "origin": {name: Value("string") for name in ORIGIN},
    }
)


@dataclass
class PairArguments:
    """How pairs are sampled and put together. The paper's authors sample 32 answers and keep 10 to 15 pairs of them."""

    pairs: str = field(metadata={"help": "Folder of the pairs; they are made where it holds none yet."})
    pair_method: str = field(
        default="correctness", metadata={"choices": list(METHODS), "help": "See the module's text."}
    )
    sampling_backend: str = field(default="transformers", metadata={"choices": list(BACKENDS), "help": "What samples."})
    samples: int = field(default=8, metadata={"help": "Answers sampled to each question."})
    sampling_temperature: float = field(default=1.0, metadata={"help": "The authors' is 1.0."})
    top_k: int = field(default=50, metadata={"help": "Likeliest tokens to draw from, the authors' 50; 0 takes all."})
    max_answer_tokens: int = field(default=512, metadata={"help": "Longest answer, in tokens."})
    max_images: int = field(default=1, metadata={"help": "Most pictures of one question; only vLLM asks for it."})
    questions_per_batch: int = field(default=32, metadata={"help": "Questions that are sampled together."})
    n_questions: int | None = field(default=None, metadata={"help": "The first questions only; all where left out."})
    pairs_per_question: int = field(default=4, metadata={"help": "At most so many pairs of one question."})
    max_pairs: int | None = field(default=None, metadata={"help": "At most so many in all, kinds in turn."})

    def __post_init__(self):
        for name, known in (("pair_method", METHODS), ("sampling_backend", BACKENDS)):
            if getattr(self, name) not in known:
                raise ValueError(f"{name}={getattr(self, name)!r}; known: {', '.join(known)}")
        for name in ("n_questions", "pairs_per_question", "questions_per_batch", "max_answer_tokens", "max_pairs"):
            if (value := getattr(self, name)) is not None and value < 1:
                raise ValueError(f"{name}={value}; 1 is the least")
        least = 2 if self.pair_method == "correctness" else 1
        if self.samples < least:
            raise ValueError(f"samples={self.samples}; {self.pair_method} needs at least {least} answers a question")

    def sampling(self) -> dict:
        """What changes the sampled answers; the rest only changes how they are paired."""
        names = ("pair_method", "sampling_backend", "samples", "sampling_temperature", "top_k", "max_answer_tokens")
        return {name: getattr(self, name) for name in (*names, "questions_per_batch")}


def make(
    name: str,
    model: PreTrainedModel,
    processor: ProcessorMixin,
    questions: Dataset,
    how: PairArguments,
    *,
    dataset: str,
    split: str = "train",
    seed: int = 0,
) -> Dataset:
    """Make the pairs in `how.pairs`, where that is not done yet, and return them as TRL reads them.

    Args:
        name: the model's. model: with vLLM it is not used, and may be None.
        questions: rows of `prompt`, `images`, and, for the method correctness, `solution`.
        dataset, split: what the questions are called in the rows' origin.

    Raises:
        ValueError: the folder holds answers sampled otherwise; or there is not one pair, and why.
    """
    folder = Path(how.pairs)
    folder.mkdir(parents=True, exist_ok=True)
    origin = {"model": name, "dataset": dataset, "split": split}
    _same_settings(folder, {**how.sampling(), **origin, "seed": seed})
    questions = questions.select(range(min(how.n_questions or len(questions), len(questions))))
    answers = _answered(folder / "answers.jsonl", name, model, processor, questions, how, seed)
    kinds = questions.with_format(None)["kind"] if "kind" in questions.column_names else [None] * len(questions)
    pairs = in_turn(paired(answers, how, seed), kinds, how.max_pairs)
    if not pairs:
        right, wrong = (sum(bool(found[side]) for found in answers) for side in ("chosen", "rejected"))
        raise ValueError(
            f"no pairs: of {len(answers)} questions {right} got an answer to choose, {wrong} one to reject, and none "
            f"both; raise samples={how.samples} or sampling_temperature={how.sampling_temperature}"
        )
    written = _write(folder, questions, pairs, {"method": how.pair_method, **origin})
    used = len({place for place, *_ in pairs})
    print(f"{written} pairs of {used} questions, out of {len(answers)} that were asked, in {folder}")
    return datasets.load(str(folder))


def are_made(where: str | Path) -> bool:
    """Whether there are pairs to load: a named set, a file, or a folder that does not wait for more answers."""
    path = Path(where)
    unfinished = (path / "settings.json").is_file() and not any(path.glob("train-*.parquet"))
    full = path.is_dir() and any(path.iterdir()) and not unfinished
    return str(where) in datasets.NAMED_DATASETS or path.is_file() or full


# --- answers --------------------------------------------------------------------------------------


def correctness_answers(rows: list[dict], sample: Sampler, processor: ProcessorMixin, how: PairArguments, seed: int):
    """Yield each row's sampled answers, right and wrong apart, each text once; none where its gold is unreadable."""
    texts = [chat_text(processor, row["prompt"]) for row in rows]
    answers = sample(texts, [row["images"] for row in rows], how.samples, seed)
    known = [name for name in ("solution", "options") if name in rows[0]]
    columns = {name: [row[name] for row in rows for _ in range(how.samples)] for name in known}
    scores = iter(accuracy_reward(completions=[text for found in answers for text, _ in found], **columns))
    for found in answers:
        scored = [(text, finished, next(scores)) for text, finished in found]
        right = [text for text, finished, score in scored if score == 1.0 and finished and is_well_formed(text)]
        wrong = [text for text, _, score in scored if score == 0.0 and text.strip()]
        yield {"chosen": list(dict.fromkeys(right)), "rejected": list(dict.fromkeys(wrong))}


def continued_answers(rows: list[dict], sample: Sampler, processor: ProcessorMixin, how: PairArguments, seed: int):
    """Yield each row's sampled answers, and of each the one whose second half was written without the picture."""
    texts = [chat_text(processor, row["prompt"]) for row in rows]
    answers = sample(texts, [row["images"] for row in rows], how.samples, seed)
    blind = [chat_text(processor, row["prompt"], with_images=False) for row in rows]
    whole = [(place, text) for place, found in enumerate(answers) for text, finished in found if finished]
    halves = [first_half(processor, text) for _, text in whole]
    starts = [blind[place] + half for (place, _), half in zip(whole, halves, strict=True)]
    ends = sample(starts, [[] for _ in starts], 1, seed + 1) if starts else []
    pairs = [(place, text, half + end) for (place, text), half, [(end, _)] in zip(whole, halves, ends, strict=True)]
    for place in range(len(rows)):
        own = dict.fromkeys((text, other) for at, text, other in pairs if at == place and text.strip() != other.strip())
        yield {"chosen": [text for text, _ in own], "rejected": [other for _, other in own]}


def first_half(processor: ProcessorMixin, text: str) -> str:
    """The first half of a text, cut between two of its tokens."""
    ids = processor.tokenizer(text, add_special_tokens=False)["input_ids"]
    return processor.tokenizer.decode(ids[: max(1, len(ids) // 2)])


def _answered(path: Path, name, model, processor, questions: Dataset, how: PairArguments, seed: int) -> list[dict]:
    """One entry for each question: read from `path` as far as it goes, sampled and added there from then on."""
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    lines = [line + "\n" for line in text.split("\n")[:-1]]
    size = how.questions_per_batch
    if len(lines) < len(questions):
        lines = lines[: len(lines) // size * size]  # a batch that was cut short is sampled anew
        path.write_text("".join(lines), encoding="utf-8")
    done = [json.loads(line) for line in lines[: len(questions)]]
    if len(done) == len(questions):
        return done
    sample = _sampler(name, model, processor, how)
    answer = correctness_answers if how.pair_method == "correctness" else continued_answers
    with path.open("a", encoding="utf-8") as file, tqdm(total=len(questions), desc="questions asked") as bar:
        bar.update(len(done))
        for start in range(len(done), len(questions), size):
            rows = [questions[i] for i in range(start, min(start + size, len(questions)))]
            found = list(answer(rows, sample, processor, how, seed * 1_000_003 + start))
            file.write("".join(json.dumps(one, ensure_ascii=False) + "\n" for one in found))
            file.flush()
            done += found
            bar.update(len(rows))
    return done


def _sampler(name: str, model: PreTrainedModel | None, processor: ProcessorMixin, how: PairArguments) -> Sampler:
    options = {"max_new_tokens": how.max_answer_tokens, "temperature": how.sampling_temperature, "top_k": how.top_k}
    if how.sampling_backend == "vllm":
        return vllm_sampler(name, processor, max_images=how.max_images, **options)
    return transformers_sampler(model, processor, **options)


# --- pairs ----------------------------------------------------------------------------------------


def paired(answers: list[dict], how: PairArguments, seed: int) -> list[tuple[int, int, str, str]]:
    """The pairs of all questions: (the question's place, the pair's number within it, chosen, rejected)."""
    found = []
    for place, sides in enumerate(answers):
        if how.pair_method == "correctness":
            rng = random.Random(f"{seed} {place}")
            pairs = pair_up(sides["chosen"], sides["rejected"], how.pairs_per_question, rng)
        else:
            pairs = list(zip(sides["chosen"], sides["rejected"], strict=True))[: how.pairs_per_question]
        found += [(place, number, *pair) for number, pair in enumerate(pairs)]
    return found


def pair_up(right: list[str], wrong: list[str], most: int, rng: random.Random) -> list[tuple[str, str]]:
    """At most `most` different pairs, in which no answer stands two times more often than another of its side."""
    right, wrong = rng.sample(right, len(right)), rng.sample(wrong, len(wrong))
    if not right or not wrong:
        return []
    again = math.lcm(len(right), len(wrong))  # after so many steps in both lists the same pairs would come again
    steps = range(min(most, len(right) * len(wrong)))
    return [(right[k % len(right)], wrong[(k + k // again) % len(wrong)]) for k in steps]


def in_turn(pairs: list[tuple], kinds: list, most: int | None) -> list[tuple]:
    """At most `most` pairs: each kind of question in turn gives one, so that no kind fills the set alone."""
    if most is None or len(pairs) <= most:
        return pairs
    given: dict = {}
    ranks = []
    for place, *_ in pairs:
        given[kinds[place]] = given.get(kinds[place], 0) + 1
        ranks.append(given[kinds[place]])
    kept = sorted(range(len(pairs)), key=lambda i: (ranks[i], i))[:most]
    return [pairs[i] for i in sorted(kept)]


def _write(folder: Path, questions: Dataset, pairs: list[tuple], origin: dict) -> int:
    """Write the pairs as Parquet parts; one that is there already, of a repeated question, is left out."""
    for old in (*folder.glob("train-*.parquet"), *folder.glob("*.unfinished")):
        old.unlink()
    seen, rows, parts = set(), [], []
    for last, (place, number, chosen, rejected) in enumerate(pairs, 1 - len(pairs)):
        row = questions[place]
        images = [encoded(image) for image in row["images"]]
        content = hashlib.sha256(b"".join(images) + json.dumps([row["prompt"], chosen, rejected]).encode()).digest()
        if content not in seen:
            seen.add(content)
            name = str(row["id"] if row.get("id") is not None else place)
            solution = None if row.get("solution") is None else str(row["solution"])
            turns = {
                side: [{"role": "assistant", "content": [{"type": "text", "text": text}]}]
                for side, text in (("chosen", chosen), ("rejected", rejected))
            }
            pictures = [{"bytes": image, "path": None} for image in images]
            made = {"id": f"{name}/{number}", "prompt": row["prompt"], "images": pictures, "kind": row.get("kind")}
            rows.append({**made, **turns, "origin": {**origin, "row": name, "solution": solution}})
        if len(rows) == PART_PAIRS or (last == 0 and rows):
            parts.append(folder / f"train-{len(parts):05}.unfinished")
            Dataset.from_list(rows, features=FEATURES).to_parquet(str(parts[-1]))
            rows = []
    for part in parts:  # now that all are whole, so that half a set is never taken for a set
        part.replace(part.with_suffix(".parquet"))
    return len(seen)


def _same_settings(folder: Path, settings: dict) -> None:
    path = folder / "settings.json"
    before = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else settings
    if before != settings:
        other = {key: before.get(key) for key in settings if before.get(key) != settings[key]}
        raise ValueError(
            f"the answers in {folder} were sampled with {other}; remove it, or name another folder as pairs"
        )
    path.write_text(json.dumps(settings), encoding="utf-8")


@dataclass
class SourceArguments:
    """What the pairs are made of."""

    model: str = field(metadata={"help": "Model that answers: a name of recipe_lib.models, a folder, a hub name."})
    dataset: str = field(metadata={"help": "Questions: a named set of recipe_lib.datasets, a folder, a hub name."})
    split: str = field(default="train", metadata={"help": "Split of the questions. Leave the test split to tests."})
    seed: int = field(default=0, metadata={"help": "Of the sampling and of the pairing."})


def main(argv: list[str] | None = None) -> Dataset:
    parser = HfArgumentParser((SourceArguments, PairArguments), description=__doc__.splitlines()[0])
    given, how = parser.parse_args_into_dataclasses(argv)
    own_file = given.dataset not in datasets.NAMED_DATASETS and how.pair_method == "drop_and_continue"
    columns = {"columns": {"solution": None}} if own_file else {}  # no gold is asked for
    questions = datasets.load(given.dataset, given.split, limit=how.n_questions, **columns)
    name = models.pick(given.model)
    model, processor = models.load(name)
    model = None if how.sampling_backend == "vllm" else model  # vLLM loads its own
    return make(name, model, processor, questions, how, dataset=given.dataset, split=given.split, seed=given.seed)


if __name__ == "__main__":
    main()
