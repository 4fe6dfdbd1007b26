"""The shipped message passing against its peers, and the pieces around it."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch_geometric")

from apportion.data.batch import Graph, pack  # noqa: E402
from apportion.errors import InvalidSetting  # noqa: E402
from apportion.learn.dataflow.programl import NodeNetwork, ProgramlSettings, node_inputs  # noqa: E402
from apportion.learn.nn.layers import (  # noqa: E402
    GatedMessages,
    GatedReadout,
    NodeEmbedding,
    disagreement,
    operations_for,
    sinusoids,
)
from apportion.learn.nn.propagation import Edges, TorchOperations  # noqa: E402

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def forward() -> ModuleType:
    """The benchmark, which keeps the peers."""
    path = Path(__file__).parents[3] / "benchmarks" / "forward.py"
    spec = importlib.util.spec_from_file_location("forward_benchmark", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("peer", ["original", "initial", "improved"])
def test_scores_and_gradients_equal_those_of_every_peer(forward: ModuleType, peer: str) -> None:
    batch = forward.make_batch(3, seed=2)
    torch.manual_seed(0)
    network = NodeNetwork(2231, 2, ProgramlSettings(steps=8))
    inputs = node_inputs(batch, CPU, gradients=True)
    difference = forward.compare(network, forward.PEERS[peer](network.messages, batch, CPU), inputs)
    assert difference["scores"] < 1e-5
    assert difference["gradients"] < 1e-4


def test_without_gradients_the_states_are_the_same() -> None:
    graph = Graph(
        torch.zeros(3, dtype=torch.int32).numpy(),
        torch.tensor([[0, 1], [1, 2]], dtype=torch.int32).numpy(),
        torch.tensor([0, 1], dtype=torch.uint8).numpy(),
        torch.tensor([0, 2], dtype=torch.int32).numpy(),
    )
    edges = Edges.of(pack([graph]).batch([0], [0]), CPU, gradients=True)
    torch.manual_seed(0)
    layer, state = GatedMessages(6, 6), torch.randn(3, 6)
    trained = layer(state, edges, steps=5)
    with torch.no_grad():
        assert torch.allclose(layer(state, edges, steps=5), trained, atol=1e-6)


def test_a_node_that_gets_no_message_still_takes_its_steps() -> None:
    lonely = Graph(*(torch.zeros(shape, dtype=kind).numpy() for shape, kind in (
        ((1,), torch.int32), ((2, 0), torch.int32), ((0,), torch.uint8), ((0,), torch.int32)
    )))  # fmt: skip
    edges = Edges.of(pack([lonely]).batch([0], [0]), CPU, gradients=True)
    torch.manual_seed(0)
    layer = GatedMessages(4, 6)
    state = torch.randn(1, 4, requires_grad=True)
    expected = layer.update(torch.zeros(1, 4), state)
    result = layer(state, edges, steps=1)
    torch.testing.assert_close(result, expected)
    result.sum().backward()
    assert torch.isfinite(state.grad).all()


def test_the_gradient_is_that_of_finite_differences() -> None:
    torch.manual_seed(0)
    graph = Graph(
        torch.zeros(4, dtype=torch.int32).numpy(),
        torch.tensor([[0, 1, 2, 0, 3], [1, 2, 0, 2, 3]], dtype=torch.int32).numpy(),
        torch.tensor([0, 1, 2, 1, 0], dtype=torch.uint8).numpy(),
        torch.tensor([0, 1, 0, 3, 1], dtype=torch.int32).numpy(),
    )
    edges = Edges.of(pack([graph]).batch([0], [0]), CPU, gradients=True)
    layer, state = GatedMessages(4, 6), torch.randn(4, 4, requires_grad=True)
    layer(state, edges, steps=3).sum().backward()
    for parameter in (state, layer.gate.weight, layer.message.weight, layer.update.weight_hh):
        direction = torch.randn_like(parameter)
        with torch.no_grad():
            sums = []
            for sign in (1, -1):
                parameter += sign * 5e-3 * direction
                sums.append(float(layer(state, edges, steps=3).double().sum()))
                parameter -= sign * 5e-3 * direction
        assert float((parameter.grad * direction).sum()) == pytest.approx(
            (sums[0] - sums[1]) / 1e-2, rel=0.02, abs=2e-3
        )


def test_a_gradient_is_taken_once() -> None:
    edges = Edges.of(
        pack([Graph(*(torch.zeros(shape, dtype=kind).numpy() for shape, kind in (
            ((2,), torch.int32), ((2, 1), torch.int32), ((1,), torch.uint8), ((1,), torch.int32)
        )))]).batch([0], [0]), CPU, gradients=True,
    )  # fmt: skip
    result = GatedMessages(4, 6)(torch.randn(2, 4), edges, steps=2).sum()
    result.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="can be taken once"):
        result.backward()


def test_gates_are_near_one_before_training_and_differ_by_position() -> None:
    torch.manual_seed(0)
    gates = GatedMessages(34, 6, unplaced=2).gates()
    assert gates.shape == (4096, 34)
    assert 0 < float(gates.detach().min()) < 1 < float(gates.detach().max()) < 2
    assert not torch.allclose(gates[0], gates[1])


def test_sinusoids_start_with_zeros_and_ones_and_never_repeat_early() -> None:
    table = sinusoids(100, 8)
    assert table[0].tolist() == [0, 0, 0, 0, 1, 1, 1, 1]
    assert len(torch.unique(table, dim=0)) == 100
    assert sinusoids(3, 5).shape == (3, 5)


def test_the_root_is_marked_in_the_last_two_columns() -> None:
    embedding = NodeEmbedding(5, 3, 50.0)
    states = embedding(torch.tensor([4, 4]), torch.tensor([0, 1]))
    assert states[:, 3:].tolist() == [[50, 0], [0, 50]]
    assert torch.equal(states[0, :3], states[1, :3])


def test_the_readout_is_gated_by_both_states() -> None:
    readout = GatedReadout(2, 1)
    with torch.no_grad():
        for parameter in readout.parameters():
            parameter.fill_(1.0)
    first, last = torch.tensor([[1.0, -3.0]]), torch.tensor([[2.0, 0.5]])
    expected = torch.sigmoid(torch.tensor(1 - 3 + 2 + 0.5 + 1)) * (2 + 0.5 + 1)
    assert float(readout(first, last).detach()) == pytest.approx(float(expected))


def test_triton_kernels_equal_plain_torch() -> None:
    pytest.importorskip("triton")
    if not (torch.cuda.is_available() or os.environ.get("TRITON_INTERPRET")):
        pytest.skip("no GPU here, and TRITON_INTERPRET is not set")
    from apportion.learn.nn.triton_kernels import TritonOperations

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    assert disagreement(TritonOperations(), TorchOperations(), device) < 1e-5


def test_operations_are_compared_whoever_asks_first() -> None:
    """A network that answers before it is trained asks without gradients; its operations are checked alike."""
    with torch.no_grad():
        assert disagreement(TorchOperations(), TorchOperations(), CPU) == 0.0


def test_a_device_with_and_without_its_number_has_one_answer() -> None:
    assert operations_for(CPU) is operations_for(torch.device("cpu"))
    if not torch.cuda.is_available():
        pytest.skip("no GPU here")
    with torch.no_grad():
        assert operations_for(torch.device("cuda")) is operations_for(torch.device("cuda:0"))


def test_undiluted_messages_are_summed() -> None:
    star = Graph(
        torch.zeros(5, dtype=torch.int32).numpy(),
        torch.tensor([[1, 2, 3, 4], [0, 0, 0, 0]], dtype=torch.int32).numpy(),
        torch.zeros(4, dtype=torch.uint8).numpy(),
        torch.zeros(4, dtype=torch.int32).numpy(),
    )
    batch = pack([star]).batch([0], [0])
    mean, root, summed = (
        Edges.of(batch, CPU, gradients=True, dilution=power).incoming.weight.tolist()
        for power in (1.0, 0.5, 0.0)
    )
    assert sorted(set(mean)) == [0.25, 1.0]
    assert sorted(set(root)) == [0.5, 1.0]
    assert set(summed) == {1.0}
    with pytest.raises(InvalidSetting, match="dilution must be from 0 to 1"):
        ProgramlSettings(dilution=-1.0)
