"""Fine-tuning: it learns, repeats itself to the bit, resumes after a stop, and reports errors."""

import json
import shutil
import warnings
from types import SimpleNamespace

import pytest
import torch

import alti
from alti.experiments.train import Recipe, train
from alti.experiments.trainer import ByLength, RepeatableTrainer, fit

import tiny
from speed import mostly_slow, slow

WORDS = ("clever", "funny", "bad", "clumsy")


def saved(folder, **config):
    tiny.speaking("bert", "AutoModelForMaskedLM", dtype=torch.float32, **config).save_pretrained(
        folder
    )
    tiny.tokenizer().save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    """With dropout, whose random numbers a run that goes on must find again."""
    return saved(tmp_path_factory.mktemp("checkpoint"))


@pytest.fixture(scope="module")
def steady(tmp_path_factory):
    still = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    return saved(tmp_path_factory.mktemp("steady"), **still)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    file = tmp_path_factory.mktemp("data") / "texts.jsonl"
    rows = []
    for split, count in (("train", 96), ("validation", 24)):
        for i in range(count):
            word = WORDS[i % 4]
            text = f"the {('plot', 'film', 'acting')[i % 3]} is {word} and ***mask*** long"
            rows.append(
                {"text": text, "label": "good" if word in WORDS[:2] else "poor", "split": split}
            )
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(file)


def recipe(checkpoint, data, **change):
    settings = {"epochs": 12, "batch": 8, "rate": 2e-3, "tokens": 32, "mask_token": "***mask***"}
    return Recipe(checkpoint, data, **{**settings, **change})


def weights(folder):
    return alti.load(folder, device="cpu").model.state_dict()


@mostly_slow("task", ["text", "mask"], quick=["text"])
def test_it_learns_and_the_result_can_be_explained(steady, data, tmp_path, task):
    steps = []
    longer = recipe(
        steady, data, task=task, rate=1e-3, epochs=20
    )  # the tokenizer is trained anew in each process, with luck
    card = train(longer, tmp_path, watch=lambda step, of: steps.append((step, of)))
    assert card["accuracy"] > 0.9
    assert json.loads((tmp_path / "card.json").read_text()) == card
    assert steps[-1] == (240, 240)
    assert not (tmp_path / "steps").exists()
    model = alti.load(tmp_path, device="cpu")
    place = {"position": -4} if task == "mask" else {}
    result = model.explain("the film is clumsy and [MASK] long", method="absence", **place)
    assert result.label == "poor"
    assert result.scores.isfinite().all()


@slow
def test_a_run_that_was_stopped_goes_on_as_if_it_had_not(checkpoint, data, tmp_path):
    class Stop(Exception):
        pass

    def stop(step, steps):
        if step == 17:
            raise Stop

    whole = train(recipe(checkpoint, data), tmp_path / "whole")
    with pytest.raises(Stop):
        train(recipe(checkpoint, data), tmp_path / "stopped", watch=stop)
    seen = []
    card = train(
        recipe(checkpoint, data), tmp_path / "stopped", watch=lambda step, _: seen.append(step)
    )
    assert seen[0] == 15  # a state was written every seventh step
    assert card == whole
    one, other = weights(tmp_path / "whole"), weights(tmp_path / "stopped")
    assert all(torch.equal(one[name], other[name]) for name in one)


@slow
def test_a_seed_makes_it_repeatable(checkpoint, data, tmp_path):
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        train(recipe(checkpoint, data, seed=seed, epochs=0.5), tmp_path / name)
    one, same, other = (weights(tmp_path / name) for name in "abc")
    assert all(torch.equal(one[name], same[name]) for name in one)
    assert not all(torch.equal(one[name], other[name]) for name in one)


def test_batches_are_of_similar_length():
    lengths = [1 + i * 7 % 50 for i in range(1003)]
    order = list(ByLength(lengths, 8, seed=0))
    assert sorted(order) == list(range(1003))
    spread = [
        max(batch) - min(batch)
        for i in range(0, 1003, 8)
        if (batch := [lengths[j] for j in order[i : i + 8]])
    ]
    assert max(spread) <= 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"task": "token"}, "choose text or mask"),
        ({"epochs": 0}, "epochs = 0 trains nothing"),
        ({"split": "dev"}, "dev"),
        ({"label": "stars"}, "stars"),
        ({"first": 1}, "training needs two or more"),
    ],
)
def test_wrong_recipes(checkpoint, data, tmp_path, change, message):
    with pytest.raises(alti.UsageError, match=message):
        train(recipe(checkpoint, data, **change), tmp_path)


def test_nothing_is_printed(checkpoint, data, tmp_path, capsys):
    train(recipe(checkpoint, data, epochs=0.5), tmp_path)
    assert capsys.readouterr().out == ""


def test_a_checkpoint_that_is_not_there(data, tmp_path):
    with pytest.raises(alti.UsageError, match="does not exist: give a folder that holds"):
        train(recipe(str(tmp_path / "nothing"), data), tmp_path)


def test_data_without_splits_is_trained_on_as_a_whole(checkpoint, tmp_path):
    lines = [f"{'clever' if i % 2 else 'dull'} film {i},{i % 2}" for i in range(12)]
    (tmp_path / "plain.csv").write_text("\n".join(["text,label", *lines]), encoding="utf-8")
    with pytest.warns(
        UserWarning, match="no column 'split': training on all of it, and measuring no accuracy"
    ):
        card = train(
            Recipe(str(checkpoint), str(tmp_path / "plain.csv"), epochs=0.2), tmp_path / "out"
        )
    assert (card["texts"], card["split"], card["accuracy"]) == (12, None, None)


@slow
def test_a_folder_is_of_one_recipe(checkpoint, data, tmp_path):
    class Stop(Exception):
        pass

    def stop(step, steps):
        if step == 9:
            raise Stop

    short = recipe(checkpoint, data, epochs=1)
    with pytest.raises(Stop):
        train(short, tmp_path, watch=stop)
    with pytest.raises(alti.UsageError, match=r"belongs to another run \(rate = 0.002\)"):
        train(recipe(checkpoint, data, epochs=1, rate=0.5), tmp_path)
    whole, *_ = (tmp_path / "steps").glob("checkpoint-*")
    (tmp_path / "steps" / "checkpoint-99").mkdir()  # half a state, of a run that was killed
    seen = []
    with pytest.warns(UserWarning, match="unfinished: .*checkpoint-99; resuming from"):
        card = train(short, tmp_path, watch=lambda step, _: seen.append(step))
    assert seen[0] == int(whole.name.rpartition("-")[2]) + 1
    assert train(short, tmp_path, watch=lambda *_: pytest.fail("trained again")) == card
    with pytest.raises(alti.UsageError, match=r"another run \(seed = 0\)"):
        train(recipe(checkpoint, data, epochs=1, seed=7), tmp_path)


def test_numbers_keep_their_order_as_labels(checkpoint, tmp_path):
    file = tmp_path / "many.jsonl"
    rows = [{"text": f"the film is {WORDS[i % 4]}", "label": i % 12} for i in range(24)]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    given = recipe(checkpoint, str(file), split=None, validation=None, epochs=0.5)
    card = train(given, tmp_path / "model", saves=0)
    assert card["labels"] == [str(i) for i in range(12)]
    assert card["accuracy"] is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"task": "mask", "mask_token": None},
            r"has exactly one \[MASK\], which task = 'mask' reads",
        ),
        ({"first": 0}, "first = 0 trains nothing"),
    ],
)
def test_what_cannot_be_trained(checkpoint, data, tmp_path, change, message):
    with pytest.raises(alti.UsageError, match=message):
        train(recipe(checkpoint, data, **change), tmp_path)


def test_a_folder_that_cannot_be(checkpoint, data, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(alti.UsageError, match="cannot be made a folder"):
        train(recipe(checkpoint, data), tmp_path / "file")
    with pytest.raises(alti.UsageError, match="saves = -1"):
        train(recipe(checkpoint, data), tmp_path, saves=-1)


def test_pairs_of_texts(checkpoint, tmp_path):
    """The second text is trained on too."""
    rows = [{"a": a, "b": b, "label": int(a == b)} for a in WORDS for b in WORDS for _ in range(3)]
    (tmp_path / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    recipe = Recipe(
        checkpoint,
        str(tmp_path / "pairs.jsonl"),
        split=None,
        validation=None,
        text="a",
        pair="b",
        epochs=0.2,
    )
    card = train(recipe, tmp_path / "out")
    assert (card["pair"], card["texts"]) == ("b", 48)
    assert alti.load(tmp_path / "out", device="cpu").explain("clever", "bad").text_pair == "bad"


class Stubborn:
    """A trainer whose model has an operation that a GPU does not repeat."""

    def __init__(self, device: str) -> None:
        self.args, self.modes = SimpleNamespace(device=torch.device(device)), []
        self.state = SimpleNamespace(global_step=0)

    def train(self, resume_from_checkpoint: str | None) -> None:
        self.modes.append(torch.are_deterministic_algorithms_enabled())
        if self.modes[-1]:
            raise RuntimeError(
                "cumsum_cuda_kernel does not have a deterministic implementation, but you set ..."
            )


def test_what_a_gpu_does_not_repeat_is_trained_and_said(monkeypatch):
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", "")  # given back afterwards
    trainer = Stubborn("cuda")
    with pytest.warns(
        UserWarning, match="does not repeat this model's training to the bit .cumsum"
    ):
        fit(trainer, None)
    assert trainer.modes == [True, False]
    assert not torch.are_deterministic_algorithms_enabled()
    trainer.state.global_step = 3
    with pytest.raises(RuntimeError):  # what is trained already would be trained again
        fit(trainer, None)
    with pytest.warns(UserWarning, match="does not repeat"):  # a resumed run restores its state
        fit(trainer, "checkpoint-3")
    plain = Stubborn("cpu")
    fit(plain, None)
    assert plain.modes == [False]


class Stop(Exception):
    pass


def stopped(given, folder, at):
    def stop(step, steps):
        if step == at:
            raise Stop

    with pytest.raises(Stop):
        train(given, folder, watch=stop)


def resumed(given, folder):
    """The first step that is taken, the warnings, and the card."""
    seen = []
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        card = train(given, folder, watch=lambda step, _: seen.append(step))
    return seen[0], [str(warning.message) for warning in warned], card


def same_weights(one, other):
    one, other = weights(one), weights(other)
    return all(torch.equal(one[name], other[name]) for name in one)


@pytest.fixture(scope="module")
def short(checkpoint, data):
    return recipe(checkpoint, data, epochs=2)  # 24 steps, each of which is saved


@pytest.fixture(scope="module")
def whole(short, tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    train(short, folder)
    return folder


@pytest.fixture(scope="module")
def at_six(short, tmp_path_factory):
    """A run that was stopped at its sixth step, to be copied."""
    folder = tmp_path_factory.mktemp("six")
    stopped(short, folder, at=6)
    return folder


@pytest.fixture(scope="module")
def at_nine(short, at_six, tmp_path_factory):
    """The same run, stopped once more, with the state of before still there."""
    folder = tmp_path_factory.mktemp("nine")
    shutil.copytree(at_six, folder, dirs_exist_ok=True)
    stopped(short, folder, at=9)
    shutil.copytree(at_six / "steps", folder / "steps", dirs_exist_ok=True)
    return folder


@slow
@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"null", b"\xff", b"[" * 100_000])
def test_a_damaged_recipe_is_read_from_the_state(short, whole, at_six, tmp_path, content):
    shutil.copytree(at_six, tmp_path, dirs_exist_ok=True)
    (tmp_path / "steps" / "recipe.json").write_bytes(content)
    another = recipe(short.checkpoint, short.data, epochs=1)
    damaged = pytest.warns(UserWarning, match="recipe.json is empty or damaged")
    with damaged, pytest.raises(alti.UsageError, match="belongs to another run"):
        train(another, tmp_path)
    first, (warned,), _ = resumed(short, tmp_path)
    assert first == 6
    assert warned.endswith("steps/recipe.json is empty or damaged, and will be rewritten")
    assert same_weights(whole, tmp_path)


@slow
def test_a_damaged_recipe_without_a_state_starts_anew(short, tmp_path):
    (tmp_path / "steps").mkdir()
    (tmp_path / "steps" / "recipe.json").touch()
    first, warned, _ = resumed(short, tmp_path)
    assert (first, len(warned)) == (1, 1)


@slow
def test_a_damaged_card_is_trained_again(short, tmp_path, whole):
    shutil.copytree(whole, tmp_path, dirs_exist_ok=True)
    (tmp_path / "card.json").write_text('{"checkpoint": ')
    first, warned, card = resumed(short, tmp_path)
    assert first == 1
    assert warned == [f"{tmp_path / 'card.json'} is empty or damaged, and will be rewritten"]
    assert json.loads((tmp_path / "card.json").read_text()) == card


def cut(file):
    file.write_bytes(file.read_bytes()[:-100])


def flipped(file):
    content = bytearray(file.read_bytes())
    content[-40] ^= 1
    file.write_bytes(content)


DAMAGES = {
    "no trainer_state.json": lambda state: (state / "trainer_state.json").write_bytes(b""),
    "half a model": lambda state: cut(state / "model.safetensors"),
    "one bit of the model": lambda state: flipped(state / "model.safetensors"),
    "half an optimizer": lambda state: cut(state / "optimizer.pt"),
    "no optimizer": lambda state: (state / "optimizer.pt").unlink(),
    "one bit of the random numbers": lambda state: flipped(state / "rng_state.pth"),
}


@slow
@pytest.mark.parametrize("earlier", [True, False])
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_state_is_passed_over(short, whole, at_six, at_nine, tmp_path, damage, earlier):
    shutil.copytree(at_nine if earlier else at_six, tmp_path, dirs_exist_ok=True)
    states = (tmp_path / "steps").glob("checkpoint-*")
    last = max(states, key=lambda state: int(state.name.rpartition("-")[2]))
    DAMAGES[damage](last)
    first, warned, _ = resumed(short, tmp_path)
    then = "resuming from checkpoint-5" if earlier else "starting again"
    assert warned == [f"damaged or unfinished: {last}; {then}"]
    assert first == (6 if earlier else 1)
    assert same_weights(whole, tmp_path)


@slow
@pytest.mark.parametrize("size", [0, 2_000, 20_000, 100_000, 130_000])
def test_a_disk_that_is_full_ends_a_run_that_then_goes_on(short, whole, tmp_path, size):
    from test_files import at_most

    with at_most(size), pytest.raises(alti.LoadError, match="could not be written") as caught:
        train(short, tmp_path / "out")
    assert "\n" not in str(caught.value)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        train(short, tmp_path / "out")
    assert same_weights(whole, tmp_path / "out")
    assert not (tmp_path / "out" / "steps").exists()


@slow
@pytest.mark.parametrize("what", ["save_model", "card"])
def test_a_disk_that_is_full_at_the_end(short, whole, tmp_path, monkeypatch, what):
    """What was trained is not trained again."""
    real = RepeatableTrainer.save_model

    def full(self, folder, _internal_call=False):
        if not _internal_call:
            raise OSError(28, "No space left on device")
        real(self, folder, _internal_call)

    with monkeypatch.context() as patch:
        if what == "save_model":
            patch.setattr(RepeatableTrainer, "save_model", full)
        else:
            (tmp_path / "card.json").mkdir()
        with pytest.raises(alti.AltiError, match=r"No space left on device|is a folder"):
            train(short, tmp_path)
    assert list((tmp_path / "steps").glob("checkpoint-24"))
    if what == "card":
        (tmp_path / "card.json").rmdir()
    train(short, tmp_path, watch=lambda *_: pytest.fail("trained again"))
    assert same_weights(whole, tmp_path)


def finite(state):
    from safetensors.torch import load_file

    tensors = load_file(state / "model.safetensors").values()
    return all(tensor.isfinite().all() for tensor in tensors)


def test_a_rate_that_is_too_high_stops_at_the_last_good_step(checkpoint, data, tmp_path):
    sentence = r"not finite at step \d+ of 24.*: train with a smaller rate"
    with pytest.raises(alti.AltiError, match=sentence) as caught:
        train(recipe(checkpoint, data, epochs=2, rate=1e36), tmp_path)
    assert not isinstance(caught.value, alti.UsageError)
    (state,) = (tmp_path / "steps").glob("checkpoint-*")
    assert str(state) in str(caught.value)
    assert finite(state)
    assert not (tmp_path / "card.json").exists()


@mostly_slow("step", [1, 7, 24], quick=[7])
def test_weights_that_are_not_finite_are_never_saved(short, tmp_path, monkeypatch, step):
    """A loss is that of the weights before the step, which may spoil them right before a save."""
    real = RepeatableTrainer.create_optimizer

    def poisoned(self, *args, **kwargs):
        optimizer = real(self, *args, **kwargs)
        update = optimizer.step

        def poison(*args, **kwargs):
            done = update(*args, **kwargs)
            if self.state.global_step == step - 1:
                with torch.no_grad():
                    next(iter(self.model.parameters())).view(-1)[0] = float("nan")
            return done

        optimizer.step = poison
        return optimizer

    monkeypatch.setattr(RepeatableTrainer, "create_optimizer", poisoned)
    kept = "nothing was saved before" if step == 1 else f"checkpoint-{step - 1} is from before"
    with pytest.raises(alti.AltiError, match=f"not finite at step {step} of 24.*{kept}"):
        train(short, tmp_path)
    states = list((tmp_path / "steps").glob("checkpoint-*"))
    assert [state.name for state in states] == [f"checkpoint-{step - 1}"] * (step > 1)
    assert all(map(finite, states))
    assert not (tmp_path / "card.json").exists()
