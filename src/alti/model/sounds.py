"""Sounds as what a speech model reads: frames for tokens, frame numbers for offsets."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import WhisperFeatureExtractor

from alti._errors import UsageError
from alti.model.encoded import Encoded
from alti.model.tokenize import Encoder

FRAME = "·"  # stands for a frame in the text of a sound, so that its offsets are frame numbers
STRIDE = 2  # columns of the features that make one frame


def require_sound(question: Any) -> None:
    """Raise where a model that hears is not given one sound."""
    if question.text is not None or question.ids is not None:
        raise UsageError(
            "a text was given to a model that hears: give audio= (--audio) with its rate=, or "
            "features="
        )
    if (question.audio is None) == (question.features is None):
        given = "neither was given" if question.audio is None else "both were given"
        raise UsageError(
            f"this model hears, and explain takes audio= with its rate=, or features=: {given}"
        )
    if question.features is not None and question.rate is not None:
        raise UsageError("rate says how audio= is read, and features= were given: leave it out")


def encode_sound(encoder: Encoder, question: Any) -> Encoded:
    """A sound as frames; those behind its end are special: silence that was added."""
    config = encoder.model.config
    extractor = WhisperFeatureExtractor(feature_size=config.num_mel_bins)
    frames = config.max_source_positions
    seconds = STRIDE * extractor.hop_length / extractor.sampling_rate
    if question.features is None:
        wave = _wave(question.audio, question.rate, extractor.sampling_rate)
        heard = -(-len(wave) // (STRIDE * extractor.hop_length))
        if heard > frames:
            raise UsageError(
                f"the sound lasts {len(wave) / extractor.sampling_rate:.1f} seconds, and the model "
                f"hears {frames * seconds:.0f} at a time: cut it into parts"
            )
        extractor = WhisperFeatureExtractor(
            feature_size=config.num_mel_bins, chunk_length=max(1, round(frames * seconds))
        )
        given = extractor(wave, sampling_rate=extractor.sampling_rate, return_tensors="pt")
        features = given["input_features"][0]
    else:
        features, heard = _features(question.features), frames
    _require_shape(features, config.num_mel_bins, STRIDE * frames)
    return Encoded(
        text=FRAME * frames,
        text_pair=None,
        ids=[0] * frames,
        types=None,
        tokens=[f"{number * seconds:.2f}s" for number in range(frames)],
        offsets=[(number, number + 1) for number in range(frames)],
        segments=[0] * frames,
        special=[number >= heard for number in range(frames)],
        features=features.to(encoder.model.dtype),
        seconds=seconds,
    )


def _wave(audio: Any, rate: Any, expected: int) -> Any:
    """A sound as numbers between −1 and 1, so many a second as the model expects."""
    if rate is None:
        raise UsageError(f"audio was given without its rate: say rate={expected} if it is that")
    if rate != expected:
        raise UsageError(
            f"the audio has {rate} numbers a second, and the model hears {expected}: resample it"
        )
    listed = audio.detach().cpu().numpy() if isinstance(audio, Tensor) else audio
    wave = np.asarray(listed, dtype=np.float32)
    if wave.ndim != 1 or not len(wave):
        raise UsageError(
            f"audio has the shape {list(wave.shape)}: give one channel, a list of numbers"
        )
    if not np.isfinite(wave).all():
        raise UsageError("audio holds numbers that are not finite: look at how it was read")
    return wave


def _features(given: Any) -> Tensor:
    if isinstance(given, Mapping):
        given = given["input_features"]
    features = torch.as_tensor(given)
    return features[0] if features.dim() == 3 and len(features) == 1 else features


def _require_shape(features: Tensor, bins: int, columns: int) -> None:
    if tuple(features.shape) != (bins, columns):
        raise UsageError(
            f"features have the shape {list(features.shape)}, and the model takes [{bins}, "
            f"{columns}]: use its own feature extractor"
        )
