"""The picture of a sound in docs/translation.md: python examples/sound.py WHISPER

A quiet hiss of three seconds with a whistle in it, and what a speech model's words rest on.
"""

import sys

import numpy as np
from pictures import IMAGES, plotted

import alti

RATE = 16000


def whistle() -> np.ndarray:
    """Three seconds: noise, and a rising tone from second 1 to 1.8."""
    seconds = np.arange(3 * RATE) / RATE
    noise = 0.002 * np.random.default_rng(0).standard_normal(len(seconds))
    inside = (seconds >= 1.0) & (seconds < 1.8)
    tone = 0.3 * np.sin(2 * np.pi * (900 + 400 * (seconds - 1)) * seconds)
    return (noise + tone * inside).astype(np.float32)


def main() -> None:
    model = alti.load(sys.argv[1])
    errors = model.check()
    print(f"{len(errors)} blocks, worst error {max(errors):.1e}")
    result = model.explain(audio=whistle(), rate=RATE, generate=12)
    print(result.source.texts[1])
    print(result)
    print("share of the sound:", [round(share, 2) for share in result.source_share.tolist()])
    plotted(result.plot(), IMAGES / "sound.svg")


if __name__ == "__main__":
    main()
