"""examples.llm with models of transformers, random ones, read from a directory."""

import functools

import pytest
import torch
import transformers
from command_lines import refused as refuse
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from examples.llm import cli, text
from examples.llm.generation import Writer
from examples.llm.modes import Mode
from examples.llm.pretrained import PretrainedDecoder, Tokens, load_pretrained

refused = functools.partial(refuse, cli.main)

VOCABULARY = 300
PROMPT = "The value of the statement"
LENGTH = 24
common = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 48,
    "max_position_embeddings": 64,
    # Logits far apart: the most probable token is the same whatever rounding does.
    "initializer_range": 0.5,
    "eos_token_id": 0,
    "bos_token_id": 0,
    "pad_token_id": 0,
}
# Windows shorter than the text.
CONFIGS = {
    "llama": transformers.LlamaConfig(**common),
    "gpt2": transformers.GPT2Config(
        **{k: common[k] for k in ("vocab_size", "initializer_range", "eos_token_id")},
        **{"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64, "bos_token_id": 0},
    ),
    "mistral": transformers.MistralConfig(**common, sliding_window=8),
    "gemma3": transformers.Gemma3TextConfig(
        **common,
        head_dim=8,
        sliding_window=8,
        layer_types=["sliding_attention", "full_attention"],
        tie_word_embeddings=False,
    ),
}


def directory_of(name, path):
    config = CONFIGS[name]
    torch.manual_seed(5)
    model = transformers.AutoModelForCausalLM.from_config(config)
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=["<end>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(text.embedded()[:20000].splitlines(), trainer)
    tokenizer.decoder = decoders.ByteLevel()
    model.save_pretrained(path)
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token="<end>",
        chat_template="{% for m in messages %}U:{{ m['content'] }}{% endfor %}"
        "{% if add_generation_prompt %}A:{% endif %}",
    ).save_pretrained(path)
    return path


@pytest.fixture
def directory(request, tmp_path):
    return directory_of(getattr(request, "param", "llama"), tmp_path / "model")


def writer_on(model, mode, length, temperature=0.0):
    torch._dynamo.reset()
    return Writer(PretrainedDecoder(model, length), mode, temperature=temperature, top_k=20)


# Compiling takes long: a network with caches of one kind, and one of two.
CASES = [(name, mode) for name in CONFIGS for mode in (Mode.EAGER, Mode.GRAPHED)]
CASES += [("llama", Mode.COMPILED), ("gemma3", Mode.COMPILED_GRAPHED)]


@pytest.mark.parametrize(("directory", "mode"), CASES, indirect=["directory"])
def test_the_text_is_that_of_generate(directory, mode):
    """Greedy, against transformers' own loop on the CPU with a growing cache; twice."""
    expected_model, tokens = load_pretrained(directory, torch.device("cpu"), "float32")
    prompt = tokens.encode(PROMPT, chat=False)
    expected = expected_model.generate(
        prompt[None], max_new_tokens=LENGTH, do_sample=False, eos_token_id=None
    )[0, len(prompt) :].tolist()
    assert len(set(expected)) > 3
    model, _ = load_pretrained(directory, torch.device("webgpu"), "float32")
    writer = writer_on(model, mode, len(prompt) + LENGTH)
    for _ in range(2):
        assert [writer.read(prompt), *writer.tokens(LENGTH - 1)] == expected


def test_only_the_token_is_read(directory):
    model, tokens = load_pretrained(directory, torch.device("webgpu"), "float16")
    writer = writer_on(model, Mode.GRAPHED, 40, temperature=1.0)
    writer.read(tokens.encode(PROMPT, chat=False))
    list(writer.tokens(4))
    before = torch.webgpu.stats()
    list(writer.tokens(10))
    after = torch.webgpu.stats()
    assert after["readbacks"] - before["readbacks"] == 10


def test_pieces_are_the_text(directory):
    _, tokens = load_pretrained(directory, torch.device("cpu"), "auto")
    said = "Grüße, statement 42: naïve → done"
    pieces = tokens.pieces()
    parts = [pieces.add(token) for token in tokens.encode(said, chat=False).tolist()]
    assert "".join(parts) + pieces.end() == said
    assert sum(map(bool, parts)) > 3


def test_the_command(directory, capsys):
    torch.webgpu.reset_fallbacks()
    options = ("--model", directory, "--tokens", 12, "--prompt", PROMPT, "--temperature", 0)
    assert (
        cli.main(["generate", *map(str, options), "--mode", "graphed", "--dtype", "float16"]) == 0
    )
    written = capsys.readouterr().out
    assert PROMPT in written and "tokens/s (graphed)" in written and "on the CPU" not in written
    assert cli.main(["generate", *map(str, options), "--chat", "--stream"]) == 0
    assert PROMPT not in capsys.readouterr().out


def test_the_end_token_ends_the_text(directory, capsys, monkeypatch):
    model, tokens = load_pretrained(directory, torch.device("webgpu"), "float32")
    prompt = tokens.encode(PROMPT, chat=False)
    writer = writer_on(model, Mode.EAGER, 64)
    found = [writer.read(prompt), *writer.tokens(11)]
    monkeypatch.setattr(cli, "stops", lambda model: frozenset([found[5]]))
    options = ("--model", directory, "--tokens", 40, "--prompt", PROMPT, "--temperature", 0)
    assert cli.main(["generate", *map(str, options), "--dtype", "float32"]) == 0
    expected = tokens.tokenizer.decode(found[: found.index(found[5])])
    assert f"{PROMPT}{expected}\n" in capsys.readouterr().out


def test_what_cannot_be_used(directory, tmp_path, capsys):
    assert "is no directory" in refused(capsys, "generate", "--model", tmp_path / "none")
    (tmp_path / "empty").mkdir()
    assert "no tokenizer that can be used" in refused(
        capsys, "generate", "--model", tmp_path / "empty"
    )
    (directory / "model.safetensors").write_bytes(b"\1\0\0")
    assert "no language model that can be used" in refused(capsys, "generate", "--model", directory)


def test_a_chat_needs_a_template(directory):
    _, tokens = load_pretrained(directory, torch.device("cpu"), "auto")
    tokens.tokenizer.chat_template = None
    with pytest.raises(cli.UsageError, match="no chat template"):
        Tokens(tokens.tokenizer).encode("x", chat=True)
