"""PyTorch Geometric: layers, pooling, loaders and sparse adjacency, against the CPU's."""

import copy

import pytest
import torch
import torch.nn.functional as F

pyg = pytest.importorskip("torch_geometric")

from torch_geometric import nn as gnn  # noqa: E402
from torch_geometric import transforms, utils  # noqa: E402
from torch_geometric.data import Batch, Data, HeteroData  # noqa: E402
from torch_geometric.loader import DataLoader  # noqa: E402

DEVICE = "webgpu"
pytestmark = pytest.mark.filterwarnings("ignore:Sparse")


def graph(nodes=12, edges=40, features=8, seed=0):
    generator = torch.Generator().manual_seed(seed)
    index = torch.randint(0, nodes, (2, edges), generator=generator)
    return Data(
        x=torch.randn(nodes, features, generator=generator),
        edge_index=index,
        edge_attr=torch.rand(edges, 3, generator=generator),
        y=torch.randint(0, 3, (nodes,), generator=generator),
        num_nodes=nodes,
    )


def near(actual, expected, **tolerances):
    assert actual.device.type == DEVICE
    torch.testing.assert_close(actual.cpu(), expected, **{"rtol": 1e-4, "atol": 1e-5, **tolerances})


def check(module, *tensors):
    """Results and gradients."""
    here = copy.deepcopy(module).to(DEVICE)
    results, gradients = [], []
    for one, device in ((module, "cpu"), (here, DEVICE)):
        inputs = [t.detach().clone().to(device) for t in tensors]
        leaves = [t.requires_grad_() for t in inputs if t.is_floating_point()]
        out = one(*inputs)
        weights = torch.linspace(-1, 1, out.numel()).reshape(out.shape).to(device)
        leaves += [p for p in one.parameters() if p.requires_grad]
        results.append(out)
        gradients.append(torch.autograd.grad((out * weights).sum(), leaves))
    near(results[1], results[0])
    for actual, expected in zip(gradients[1], gradients[0], strict=True):
        near(actual, expected, rtol=1e-3, atol=1e-4)


def mlp(*sizes):
    return gnn.MLP(list(sizes), norm=None)


LAYERS = {
    "GCN": lambda: gnn.GCNConv(8, 5),
    "SAGE": lambda: gnn.SAGEConv(8, 5),
    "SAGE of maxima": lambda: gnn.SAGEConv(8, 5, aggr="max"),
    "GAT": lambda: gnn.GATConv(8, 5, heads=2),
    "GATv2": lambda: gnn.GATv2Conv(8, 5, heads=2),
    "GIN": lambda: gnn.GINConv(mlp(8, 6, 5)),
    "transformer": lambda: gnn.TransformerConv(8, 5, heads=2),
    "Chebyshev": lambda: gnn.ChebConv(8, 5, K=2),
    "several aggregations": lambda: gnn.SAGEConv(8, 5, aggr=["mean", "max", "std"]),
    "softmax": lambda: gnn.GENConv(8, 5, aggr="softmax", learn_t=True),
    "edges": lambda: gnn.EdgeConv(mlp(16, 5)),
    "gated": lambda: gnn.GatedGraphConv(8, 2),
}


@pytest.mark.parametrize("name", LAYERS)
def test_layers(name):
    torch.manual_seed(1)
    data = graph()
    check(LAYERS[name](), data.x, data.edge_index)


class Pooled(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x, batch):
        return self.function(x, batch)


POOLS = {
    "sum": gnn.global_add_pool,
    "mean": gnn.global_mean_pool,
    "max": gnn.global_max_pool,
    "softmax": lambda x, batch: utils.softmax(x, batch),
    "dense batch": lambda x, batch: utils.to_dense_batch(x, batch)[0],
    "minimum": lambda x, batch: utils.scatter(x, batch, reduce="min"),
    "product": lambda x, batch: utils.scatter(x, batch, reduce="mul"),
}


@pytest.mark.parametrize("name", POOLS)
def test_pooling(name):
    batch = torch.tensor([0] * 5 + [1] * 3 + [2] * 4)
    check(Pooled(POOLS[name]), graph().x, batch)


@pytest.mark.parametrize("name", ["GraphNorm", "LayerNorm", "BatchNorm", "InstanceNorm"])
def test_norms(name):
    batch = torch.tensor([0] * 5 + [1] * 3 + [2] * 4)
    norm = getattr(gnn, name)(8)
    if name == "BatchNorm":
        check(norm, graph().x)
    else:
        check(norm, graph().x, batch)


def test_choosing_nodes():
    torch.manual_seed(1)
    data, pool = graph(), gnn.TopKPooling(8, ratio=0.5)
    here = copy.deepcopy(pool).to(DEVICE)
    batch = torch.tensor([0] * 5 + [1] * 7)
    expected = pool(data.x, data.edge_index, batch=batch)
    moved = data.to(DEVICE)
    actual = here(moved.x, moved.edge_index, batch=batch.to(DEVICE))
    for one, other in zip(actual, expected, strict=True):
        if other is not None:
            near(one, other)


@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr])
@pytest.mark.parametrize("reduce", ["sum", "mean", "max"])
def test_sparse_adjacency(layout, reduce):
    data = graph()
    results = []
    for device in ("cpu", DEVICE):
        index = data.edge_index.to(device)
        make = (
            utils.to_torch_coo_tensor if layout == torch.sparse_coo else utils.to_torch_csr_tensor
        )
        adjacency = make(*utils.coalesce(index, torch.ones(40, device=device)), size=(12, 12))
        x = data.x.to(device).requires_grad_()
        if layout == torch.sparse_coo and reduce == "max":
            adjacency = adjacency.to_sparse_csr()
        out = utils.spmm(adjacency, x, reduce)
        results.append((out, torch.autograd.grad(out.square().sum(), x)[0]))
    for actual, expected in zip(results[1], results[0], strict=True):
        near(actual, expected)


def test_layers_take_sparse_adjacency():
    torch.manual_seed(1)
    data = transforms.ToSparseTensor(layout=torch.sparse_csr)(graph())
    for layer in (gnn.GCNConv(8, 5), gnn.SAGEConv(8, 5), gnn.GINConv(mlp(8, 5))):
        expected = layer(data.x, data.adj_t)
        here = copy.deepcopy(layer).to(DEVICE)
        near(here(data.x.to(DEVICE), data.adj_t.to(DEVICE)), expected)


UTILITIES = {
    "self loops": lambda d: utils.add_self_loops(d.edge_index, num_nodes=12)[0],
    "undirected": lambda d: utils.to_undirected(d.edge_index, num_nodes=12),
    "coalesce": lambda d: utils.coalesce(d.edge_index, d.edge_attr, reduce="sum"),
    "degree": lambda d: utils.degree(d.edge_index[0], 12),
    "dense adjacency": lambda d: utils.to_dense_adj(d.edge_index, max_num_nodes=12),
    "Laplacian": lambda d: utils.get_laplacian(d.edge_index, normalization="sym", num_nodes=12)[1],
    "subgraph": lambda d: utils.subgraph(torch.arange(6, device=d.x.device), d.edge_index)[0],
    "hops": lambda d: utils.k_hop_subgraph(3, 2, d.edge_index, num_nodes=12)[0],
    "normalized features": lambda d: transforms.NormalizeFeatures()(d.clone()).x,
    "one-hot degrees": lambda d: transforms.OneHotDegree(20)(d.clone()).x,
}


@pytest.mark.parametrize("name", UTILITIES)
def test_utilities(name):
    data = graph()
    expected, actual = UTILITIES[name](data), UTILITIES[name](data.clone().to(DEVICE))
    if isinstance(expected, torch.Tensor):
        expected, actual = [expected], [actual]
    for one, other in zip(actual, expected, strict=True):
        near(one, other)


def test_batches_of_graphs_are_classified():
    graphs = [graph(nodes=6 + k, edges=20, seed=k) for k in range(8)]
    for k, data in enumerate(graphs):
        data.y = torch.tensor([k % 2])

    class Network(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = gnn.GCNConv(8, 16), gnn.SAGEConv(16, 16)
            self.last = gnn.Linear(16, 2)

        def forward(self, data):
            x = self.first(data.x, data.edge_index).relu()
            x = self.second(x, data.edge_index).relu()
            return self.last(gnn.global_mean_pool(x, data.batch))

    losses = []
    for device in ("cpu", DEVICE):
        torch.manual_seed(1)
        network = Network().to(device)
        optimizer = torch.optim.Adam(network.parameters(), lr=0.02)
        for _ in range(3):
            for data in DataLoader(graphs, batch_size=4):
                loss = F.cross_entropy(network(data.to(device)), data.to(device).y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
    assert losses[6:] == pytest.approx(losses[:6], rel=1e-3)


def test_data_moves():
    data = graph().to(DEVICE)
    assert data.is_webgpu if hasattr(data, "is_webgpu") else data.x.device.type == DEVICE
    batch = Batch.from_data_list([graph(seed=1), graph(seed=2)]).to(DEVICE)
    assert {value.device.type for _, value in batch if torch.is_tensor(value)} == {DEVICE}
    near(batch.to_data_list()[1].x, graph(seed=2).x)


def test_several_kinds_of_nodes():
    torch.manual_seed(1)
    data = HeteroData()
    data["user"].x, data["film"].x = torch.randn(5, 4), torch.randn(7, 6)
    data["user", "saw", "film"].edge_index = torch.randint(0, 5, (2, 9))
    data["film", "of", "user"].edge_index = torch.randint(0, 5, (2, 9))
    layer = gnn.HeteroConv(
        {
            ("user", "saw", "film"): gnn.SAGEConv((4, 6), 3),
            ("film", "of", "user"): gnn.GATConv((6, 4), 3, add_self_loops=False),
        }
    )
    expected = layer(data.x_dict, data.edge_index_dict)
    moved = data.to(DEVICE)
    actual = copy.deepcopy(layer).to(DEVICE)(moved.x_dict, moved.edge_index_dict)
    for kind in expected:
        near(actual[kind], expected[kind])
