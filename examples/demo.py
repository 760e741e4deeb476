"""Explain a sentence with a tiny model made on the spot: `make demo`.

The model's weights are random (seeded), so the words it picks mean nothing; it shows what alti prints and that the
installation works. Give a real model to see a real explanation:

    alti explain "A clever blend of fact and fiction." --model distilbert-base-uncased-finetuned-sst-2-english
"""

import tempfile

import torch
from tokenizers import Tokenizer, normalizers, pre_tokenizers
from tokenizers.models import WordPiece
from tokenizers.processors import TemplateProcessing
from transformers import BertConfig, BertForSequenceClassification, PreTrainedTokenizerFast
from transformers.utils.logging import disable_progress_bar

import alti

SENTENCE = "A clever blend of fact and fiction, and unbelievably funny."
PIECES = ["a", "clever", "blend", "of", "fact", "and", "fiction", ",", "un", "##believ", "##ably", "funny", "."]


def save_random_model(folder: str) -> None:
    """Write a tiny random BERT classifier and a WordPiece tokenizer for one sentence."""
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    vocabulary = {piece: i for i, piece in enumerate(special + PIECES)}
    tokenizer = Tokenizer(WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    ends = [(token, vocabulary[token]) for token in ("[CLS]", "[SEP]")]
    tokenizer.post_processor = TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=ends)
    roles = dict(zip(("pad_token", "unk_token", "cls_token", "sep_token"), special, strict=True))
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, **roles).save_pretrained(folder)
    torch.manual_seed(0)
    sizes = {"hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 4, "intermediate_size": 128}
    labels = {"id2label": {0: "negative", 1: "positive"}, "label2id": {"negative": 0, "positive": 1}}
    config = BertConfig(vocab_size=len(vocabulary), initializer_range=0.3, **sizes, **labels)
    BertForSequenceClassification(config).save_pretrained(folder)


def main() -> None:
    disable_progress_bar()
    with tempfile.TemporaryDirectory() as folder:
        save_random_model(f"{folder}/random-tiny-bert")
        model = alti.load(f"{folder}/random-tiny-bert")
        print("This model is tiny and its weights are random: which words it picks means nothing.")
        print("For a real explanation: alti explain TEXT --model NAME, with a name from the Hugging Face hub.\n")
        print(f'$ alti explain "{SENTENCE}" --model {model.name}')
        print(model.explain(SENTENCE))
        errors = model.check()
        print(f"\n$ alti check {model.name}")
        print(f"{model.name} ({model.family}): {len(errors)} blocks, worst error {max(errors):.1e} in float32: exact")


if __name__ == "__main__":
    main()
