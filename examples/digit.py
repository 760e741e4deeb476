"""Which patches of a digit a small ViT looks at: `python examples/digit.py docs/images/digit`.

Trains on scikit-learn's digits for some seconds, then writes a plot, a page and an overlay.
"""

import sys
from pathlib import Path

import torch
from pictures import plotted
from PIL import Image
from sklearn.datasets import load_digits
from transformers import ViTConfig, ViTForImageClassification

import alti


def trained(pixels: torch.Tensor, labels: torch.Tensor) -> ViTForImageClassification:
    """A ViT of two layers that reads patches of 2 × 2 pixels."""
    torch.manual_seed(0)
    config = ViTConfig(
        image_size=16, patch_size=2, num_channels=1, num_labels=10, hidden_size=48,
        num_hidden_layers=2, num_attention_heads=4, intermediate_size=96,
        id2label={i: str(i) for i in range(10)},
    )  # fmt: skip
    model = ViTForImageClassification(config).train()
    for module in model.modules():
        if isinstance(module, torch.nn.Linear):
            torch.nn.init.normal_(module.weight, std=0.1)
    optimiser = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for _ in range(12):
        for batch in torch.randperm(1500).split(50):
            loss = torch.nn.functional.cross_entropy(model(pixels[batch]).logits, labels[batch])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
    model.name_or_path = "vit-digits"  # pictures name it
    return model.eval()


def main(start: str) -> None:
    data = load_digits()
    images = torch.tensor(data.images, dtype=torch.float32).repeat_interleave(2, 1) / 16
    images = images.repeat_interleave(2, 2)  # 16 × 16
    model = trained((images[:, None] - 0.5) / 0.5, torch.tensor(data.target))
    picture = Image.fromarray((images[1500] * 255).byte().numpy())
    found = alti.explain(model, None, picture, method="consensus")
    print(found)
    Path(f"{start}.html").write_text(found.to_html())
    plotted(found.plot(), Path(f"{start}.svg"))


if __name__ == "__main__":
    main(*sys.argv[1:])
