"""The command line about language models: answers, chats, documents."""

import copy
import json

import pytest
import torch

import alti
from test_answers import CHAT, DOCUMENTS, MESSAGES

import tiny


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "tiny-gpt2"
    model = tiny.speaking(
        "gpt2", "AutoModelForCausalLM", "bpe", dtype=torch.float32, n_positions=400
    )
    model.save_pretrained(path)
    tokenizer = copy.deepcopy(tiny.tokenizer("bpe"))
    tokenizer.chat_template = CHAT
    tokenizer.bos_token = "[CLS]"
    tokenizer.save_pretrained(path)
    return path


def json_of(out):
    return [json.loads(line) for line in out.splitlines()]


def test_a_given_answer(run, folder):
    code, out, err = run("explain", "The acting is", "-m", folder, "--answer", " better")
    assert code == 0
    assert "[CLS] was put in front of the text" in err
    assert "better" in out
    code, out, _ = run(
        "explain", "The acting is", "-m", folder, "--answer", " better", "--json", "--no-bos"
    )
    (plain,) = json_of(out)
    found = alti.Attributions.from_dict(plain)
    expected = alti.load(folder).explain("The acting is", answer=" better", bos=False)
    assert found.source.tokens == expected.source.tokens
    torch.testing.assert_close(found.scores, expected.scores)


def test_a_total_and_a_rival(run, folder):
    text = ("explain", "The acting is", "-m", folder, "--answer", " better", "--json")
    _, out, _ = run(*text, "--total", "--method", "absence")
    whole = alti.Attribution.from_dict(json_of(out)[0])
    assert whole.label == " better"
    _, out, _ = run(*text, "--against", " bad", "--method", "linear")
    rival = alti.Attribution.from_dict(json_of(out)[0])
    assert rival.label == "' better' rather than ' bad'"


def test_generation_with_and_without_a_temperature(run, folder):
    text = ("explain", "The acting is", "-m", folder, "--json", "--generate", "4")
    _, first, _ = run(*text)
    _, drawn, _ = run(*text, "--temperature", "3", "--seed", "1")
    _, again, _ = run(*text, "--temperature", "3", "--seed", "1")
    _, other, _ = run(*text, "--temperature", "3", "--seed", "2")
    ids = [json_of(out)[0]["source"]["ids"] for out in (first, drawn, again, other)]
    assert len(json_of(first)[0]["predictions"]) == 4
    assert ids[1] == ids[2]
    assert len({tuple(each) for each in ids}) == 3


def test_documents_and_groups(run, folder, tmp_path):
    files = []
    for number, document in enumerate(DOCUMENTS):
        files += ["--document", tmp_path / f"{number}.txt"]
        files[-1].write_text(document + "\n")
    question = ("explain", "What is funny?", "-m", folder, *files, "--answer", "the plot")
    code, out, _ = run(*question, "--group", "document", "--json", "--total")
    assert code == 0
    found = alti.Attribution.from_dict(json_of(out)[0])
    assert found.tokens == tuple(DOCUMENTS)
    assert found.source.texts[0].startswith("[CLS]user\nThe keys")
    for shown in ((), ("--total",), ("--bars",)):
        code, out, _ = run(*question, "--group", "sentence", *shown)
        assert code == 0
        assert "The keys are" in out
    page = tmp_path / "page.html"
    code, _, err = run(*question, "--html", page)
    assert (code, "written" in err) == (0, True)
    picture = tmp_path / "picture.png"
    code, _, err = run(*question, "--plot", picture, "--group", "document", "--total")
    assert (code, picture.stat().st_size > 1000) == (0, True)
    code, _, _ = run(*question, "--latex", tmp_path / "table.tex")
    assert code == 0


def test_a_chat(run, folder, tmp_path):
    chat = tmp_path / "chat.json"
    for content in (MESSAGES, {"messages": MESSAGES}):
        chat.write_text(json.dumps(content))
        code, out, err = run("explain", "--chat", chat, "-m", folder, "--generate", "3", "--json")
        assert (code, err) == (0, "")
        assert json_of(out)[0]["source"]["parts"][1]["name"] == "user 1"


def test_methods_are_compared_on_one_answer(run, folder):
    text = ("compare", "The acting is", "-m", folder, "--methods", "alti,absence", "--no-bos")
    code, out, _ = run(*text, "--generate", "3", "--temperature", "3", "--json")
    first, second = map(alti.Attribution.from_dict, json_of(out))
    assert code == 0
    assert first.source.ids == second.source.ids
    assert (first.method, second.method) == ("alti", "absence")
    code, out, _ = run(*text, "--answer", " better than the plot", "--bars")
    assert code == 0
    assert "acting" in out
    code, out, _ = run(*text, "--answer", " better than the plot", "--group", "sentence", "--bars")
    assert (code, "The acting is" in out) == (0, True)


def test_the_lines_of_a_file(run, folder, tmp_path):
    file = tmp_path / "texts.txt"
    file.write_text("The acting is\nThe plot is\n")
    page = tmp_path / "page.html"
    lines = ("explain", "--file", file, "-m", folder, "--generate", "3")
    code, out, _ = run(*lines, "--json")
    assert (code, len(json_of(out))) == (0, 2)
    code, _, _ = run(*lines, "--html", page)
    assert code == 0
    assert "2 texts explained" in page.read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("A film", "--temperature", "1"), "give --generate N too"),
        (("A film", "--generate", "0"), "is not a number of tokens"),
        (("A film", "--generate", "3", "--temperature", "0"), "not above 0"),
        (("A film", "--chat", "x.json"), "give one of a TEXT"),
        (("--chat", "no.json", "--generate", "3"), "--chat no.json does not exist"),
        (("A film", "--document", "no.txt"), "--document no.txt does not exist"),
        (("A film", "--answer", ""), "answer is empty"),
        (("A film", "--answer", " a", "--generate", "3"), "answer and generate were given"),
        (("A film", "--group", "page", "--answer", " a"), "nothing to group by"),
        (("A film", "--group", "sentence", "--tokens"), "leave --tokens"),
        (("A film", "--group", "document"), "the text has no documents"),
    ],
)
def test_wrong_questions(run, folder, arguments, message):
    code, out, err = run("explain", *arguments, "-m", folder)
    assert (code, out) == (2, "")
    assert message in " ".join(err.split())


@pytest.mark.parametrize("content", ["no json", "3", '["a"]', '{"a": 1}'])
def test_a_file_that_is_no_chat(run, folder, tmp_path, content):
    chat = tmp_path / "chat.json"
    chat.write_text(content)
    code, _, err = run("explain", "--chat", chat, "-m", folder)
    assert code in (1, 2)
    assert "list of messages" in err
