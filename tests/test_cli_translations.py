"""The command line about encoder–decoders: alignments, sounds, languages, and what goes wrong."""

import json
import wave

import numpy as np
import pytest
import torch

import alti
from test_encoder_decoders import ANSWER, OTHER, TEXT, speaker

import tiny


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "tiny-marian"
    network = tiny.speaking(
        "marian",
        "AutoModelForSeq2SeqLM",
        dtype=torch.float32,
        decoder_start_token_id=0,
        max_position_embeddings=24,
    )
    network.save_pretrained(path)
    tiny.tokenizer().save_pretrained(path)
    return path


@pytest.fixture(scope="module")
def hearing(tmp_path_factory):
    """A tiny model that hears one second."""
    path = tmp_path_factory.mktemp("models") / "tiny-whisper"
    model = speaker(max_source_positions=50)
    model.model.float().save_pretrained(path)
    model.tokenizer.save_pretrained(path)
    return path


def sound(path, rate: int = 16000, width: int = 2, channels: int = 1):
    """A WAV file of half a second, and its numbers."""
    numbers = np.sin(np.arange(8000 * channels) / 8) * 0.5
    scaled = (numbers * 2 ** (8 * width - 1)).astype(np.int64)
    offset = 128 if width == 1 else 0
    raw = b"".join(int(x + offset).to_bytes(width, "little", signed=width > 1) for x in scaled)
    with wave.open(str(path), "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(width)
        file.setframerate(rate)
        file.writeframes(raw)
    return scaled / 2 ** (8 * width - 1)


def test_an_alignment(run, folder):
    asked = ("align", TEXT, "-m", folder, "--answer", ANSWER, "--method", "linear")
    code, out, _ = run(*asked)
    result = alti.load(folder).explain(TEXT, answer=ANSWER, method="linear")
    assert code == 0
    assert out.strip() == result.alignment().render().strip()
    _, out, _ = run(*asked, "--near", "1", "--json")
    found, expected = json.loads(out), result.alignment(near=1)
    assert [tuple(link) for link in found["links"]] == list(expected.links)
    assert (found["source"], found["target"]) == (list(expected.source), list(expected.target))
    torch.testing.assert_close(torch.tensor(found["scores"]), expected.scores.float())
    _, out, _ = run(*asked, "--near", "0.01", "--json")
    assert len(json.loads(out)["links"]) > len(found["links"])


def test_an_alignment_of_what_the_model_writes(run, folder):
    code, out, _ = run("align", TEXT, "-m", folder, "--generate", "6", "--spaced", "--json")
    assert code == 0
    assert json.loads(out)["source"] == TEXT.split()


def test_an_alignment_in_files(run, folder, tmp_path):
    page, tex, picture = (tmp_path / f"a.{ending}" for ending in ("html", "tex", "svg"))
    asked = ("align", TEXT, "-m", folder, "--answer", ANSWER)
    code, out, err = run(
        *asked, "--html", page, "--latex", tex, "--plot", picture, "--kind", "matrix"
    )
    assert (code, out) == (0, "")
    assert "a.svg written" in err
    assert "<svg" in page.read_text()
    assert r"\begin{document}" in tex.read_text()
    assert picture.read_text().rstrip().endswith("</svg>")


BAD_ALIGNMENTS = {
    "no target": ([], "explained token by token of what it writes: give that as answer="),
    "near": (["--answer", ANSWER, "--near", "2"], "near = 2.0 is no share of the best score"),
    "kind": (["--answer", ANSWER, "--kind", "graph"], "--kind graph does not exist: choose from l"),
    "plot": (["--answer", ANSWER, "--plot", "a.txt"], "a.txt does not end like a picture"),
    "language": (["--answer", ANSWER, "--tgt-lang", "de"], "has no languages: leave out tgt_lang"),
}


@pytest.mark.parametrize("case", BAD_ALIGNMENTS)
def test_bad_alignments_are_one_sentence(run, folder, case):
    more, message = BAD_ALIGNMENTS[case]
    code, out, err = run("align", TEXT, "-m", folder, *more)
    assert (code, out) == (2, "")
    assert message in err
    assert len(err.splitlines()) == 1


def test_only_encoder_decoders_align(run):
    code, _, err = run("align", TEXT, "--answer", ANSWER)
    assert code == 2
    assert "does not write one text for another" in err


BAD_INPUT = {
    "an empty source": (["  ", "--answer", ANSWER], "text is empty: give at least one word"),
    "an empty answer": ([TEXT, "--answer", " "], "answer is empty: give at least one word"),
    "an answer as the pair": (
        [TEXT, "--pair", ANSWER],
        "text_pair was given to an encoder–decoder, which reads one text and writes another",
    ),
    "a long answer": (
        [TEXT, "--answer", "a film " * 20],
        "more than the 24 that the model takes: shorten the answer",
    ),
    "a long source": (["a film " * 20, "--answer", ANSWER], "more than the 24 that the model"),
    "no answer": ([TEXT], "give that as answer="),
}


@pytest.mark.parametrize("case", BAD_INPUT)
def test_bad_input_is_one_sentence(run, folder, case):
    more, message = BAD_INPUT[case]
    code, out, err = run("explain", *more, "-m", folder)
    assert (code, out) == (2, "")
    assert message in err
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize("width", [1, 2, 3, 4])
def test_a_sound_of_a_file(run, hearing, tmp_path, width):
    numbers = sound(tmp_path / "a.wav", width=width)
    asked = ("explain", "-m", hearing, "--audio", tmp_path / "a.wav", "--answer", ANSWER)
    code, out, _ = run(*asked, "--json")
    assert code == 0
    found = alti.Attributions.from_dict(json.loads(out))
    expected = alti.load(hearing).explain(audio=numbers, rate=16000, answer=ANSWER)
    torch.testing.assert_close(found.scores, expected.scores)
    assert found.source.seconds == 0.02


def test_bad_sounds_are_one_sentence(run, hearing, folder, tmp_path):
    sound(tmp_path / "slow.wav", rate=8000)
    sound(tmp_path / "two.wav", channels=2)
    sound(tmp_path / "good.wav")
    (tmp_path / "no.wav").write_text("RIFF and no more")
    cases = [
        (hearing, "slow.wav", 2, "the audio has 8000 numbers a second, and the model hears 16000"),
        (hearing, "two.wav", 2, "audio has the shape [8000, 2]: give one channel"),
        (hearing, "no.wav", 1, "no.wav could not be read"),
        (hearing, "gone.wav", 2, "gone.wav does not exist: give a WAV file"),
        (folder, "good.wav", 2, "a sound was given to a model that reads text"),
    ]
    for model, name, expected, message in cases:
        asked = ("explain", "-m", model, "--audio", tmp_path / name, "--answer", ANSWER)
        code, out, err = run(*asked)
        assert (code, out) == (expected, "")
        assert message in err
        assert len(err.splitlines()) == 1
    code, _, err = run("explain", TEXT, "-m", hearing, "--answer", ANSWER)
    assert (code, "model that hears: give audio= (--audio)" in err) == (2, True)
    code, _, err = run("explain", TEXT, "--audio", tmp_path / "good.wav", "-m", hearing)
    assert (code, "give one of a TEXT" in err) == (2, True)


@pytest.mark.parametrize("method", ["alti", "linear", "dimming", "leave_one_out"])
def test_several_sounds_in_one_call(method):
    """Of different lengths, with answers of different lengths: as one by one."""
    model = speaker(max_source_positions=50)
    waves = [np.sin(np.arange(length) / 8) for length in (8000, 3000, 16000)]
    answers = [ANSWER, OTHER[1], "the"]
    together = list(
        model.explain_all(waves, rate=16000, answer=answers, method=method, batch_size=2)
    )
    for one, wave_, answer in zip(together, waves, answers, strict=True):
        alone = model.explain(audio=wave_, rate=16000, answer=answer, method=method)
        assert one.source == alone.source
        torch.testing.assert_close(one.scores, alone.scores, atol=1e-9, rtol=0)
    features = torch.randn(2, 8, 100, generator=torch.Generator().manual_seed(0))
    heard = list(model.explain_all(features, answer=ANSWER, method=method))
    alone = model.explain(features=features[1], answer=ANSWER, method=method)
    torch.testing.assert_close(heard[1].scores, alone.scores, atol=1e-9, rtol=0)


def test_what_is_no_sound_among_several():
    model = speaker(max_source_positions=50)
    found = model.explain_all([np.zeros(100), TEXT], rate=16000, answer=ANSWER)
    next(found)
    with pytest.raises(alti.UsageError, match=r"texts\[1\]: a text was given to a model that hear"):
        next(found)
    found = model.explain_all([np.zeros(100)], rate=8000, answer=ANSWER)
    with pytest.raises(alti.UsageError, match="the audio has 8000 numbers a second"):
        next(found)


def test_near_is_for_alignments(run, tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "A film.", "label": 1}\n')
    code, _, err = run("bench", "--data", tmp_path / "a.jsonl", "--near", "0.5")
    assert code == 2
    assert "--near says nothing about --task text" in err


def test_languages_do_not_go_into_a_folder(run, folder, tmp_path):
    (tmp_path / "a.txt").write_text("A film.\n")
    asked = ("--file", tmp_path / "a.txt", "--out", tmp_path / "out", "--src-lang", "de")
    code, _, err = run("explain", "-m", folder, *asked)
    assert (code, "the language de is not given on with --out" in err) == (2, True)
