"""The text side that all tiny models share: a family's real chat template, and a tokenizer that is trained here."""

from __future__ import annotations

from importlib import resources

from tokenizers import AddedToken, Tokenizer, decoders, pre_tokenizers, trainers
from tokenizers.models import BPE

from recipe_lib.answer_format import TAGS


def chat_template(name: str) -> str:
    """A family's real chat template, from the installed TRL wheel."""
    return (resources.files("trl") / "chat_templates" / f"{name}.jinja").read_text()


def train_tokenizer(special: list[str], texts: list[str], vocab_size: int) -> Tokenizer:
    """A byte-level BPE that can spell any text, and spells `texts` in few tokens.

    GPT-2's word pattern keeps a space with the word after it, so that the `7` of an option ("B. 7") and the `7`
    of the reasoning ("is 7") are one and the same token: a small model finds an option by it.
    """
    tokenizer = Tokenizer(BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=special,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    # One token each, as in the tokenizers of reasoning models (Qwen3): an answer has 12 tokens instead of 20.
    # They are not special, so that decoding keeps them.
    tokenizer.add_tokens([AddedToken(tag, normalized=False) for tag in TAGS])
    return tokenizer
