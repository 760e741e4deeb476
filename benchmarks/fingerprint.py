"""What Model.fingerprint costs: seconds, and how many forward passes of 128 tokens that is.

python benchmarks/fingerprint.py                  # on the GPU, if there is one
"""

import statistics
import time
from collections.abc import Callable

import torch
from transformers import LlamaConfig, LlamaForCausalLM

import alti

TOKENS = 128
REPEATS = 5
LLAMA = {  # SmolLM-135M's shape
    "vocab_size": 49152,
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "tie_word_embeddings": True,
}


def main() -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    print(f"{device}, {torch.get_num_threads()} threads, median of {REPEATS}")
    print("model       parameters  fingerprint     forward  ratio")
    embedded = alti.load(device=device)
    show("embedded", embedded)
    for dtype in (torch.float32, torch.bfloat16):
        torch.manual_seed(0)
        llama = LlamaForCausalLM(LlamaConfig(**LLAMA)).eval().to(device, dtype)
        model = alti.Model(llama, embedded.tokenizer, name="llama")
        show(f"Llama {'f32' if dtype == torch.float32 else 'bf16'}", model)


def show(name: str, model: alti.Model) -> None:
    count = sum(p.numel() for p in model.model.parameters()) / 1e6
    hashing = seconds(model.fingerprint)
    forward = seconds(lambda: forward_pass(model))
    ratio = hashing / forward
    print(f"{name:10}  {count:8.1f} M  {hashing:9.3f} s  {forward:8.4f} s  {ratio:5.1f}")


def forward_pass(model: alti.Model) -> None:
    ids = torch.arange(5, TOKENS + 5, device=model.model.device)[None]
    with torch.no_grad():
        model.model(input_ids=ids)
    if ids.is_cuda:
        torch.cuda.synchronize()


def seconds(call: Callable[[], object]) -> float:
    """The median; the first call is not counted."""
    call()
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


if __name__ == "__main__":
    main()
