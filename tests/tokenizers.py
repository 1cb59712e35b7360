"""Small tokenizers, made here."""

from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

END = "<|end|>"


def make_tokenizer(folder: Path, *, longest: int = 0) -> Path:
    """Write a byte-level tokenizer of about 300 tokens. Token 0 is `END`; ``longest``: characters of one more token."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=300, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), special_tokens=[END], show_progress=False
    )
    tokenizer.train_from_iterator(["hello world, we add numbers <b>"] * 3, trainer)
    if longest:
        tokenizer.add_tokens(["x" * longest])
    path = folder / "tokenizer.json"
    tokenizer.save(str(path))
    return path
