"""Networks over tokens: attention, embeddings, masks, positions, and sequences of any length."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import asterism
import asterism.kernels.library as library
import asterism.runtime
from asterism.errors import FormatError, InputError
from asterism.graph.capture import capture
from asterism.graph.network import Graph, Input, Node, decode, encode
from asterism.runtime import Net, reference
from support.networks import arrays_of
from support.transformers import (
    GPT,
    LONGEST,
    OF_WORDS,
    OVER_TOKENS,
    WIDTH,
    WORDS,
    ViT,
    encoder,
    prune,
)


def net_of(model: nn.Module, *examples: Tensor) -> Net:
    return with_weights(capture(model, examples), model)


def with_weights(graph: Graph, model: nn.Module) -> Net:
    assert graph.unknown == ()
    return Net(decode(encode(graph)), arrays_of(model))


@cache
def captured(name: str) -> Graph:
    """Of a network over tokens, once: it is the same at every density."""
    with torch.random.fork_rng():
        return capture(OVER_TOKENS[name]().eval(), torch.zeros(1, 8, WIDTH))


@cache
def gpt() -> Net:
    """A call leaves nothing in it."""
    with torch.random.fork_rng():
        return net_of(GPT().eval(), torch.zeros(1, 7, dtype=torch.long))


@torch.no_grad()
def agrees(net: Net, model: nn.Module, *inputs: Tensor) -> None:
    """Torch, the kernels and numpy."""
    arrays = [x.numpy() for x in inputs]
    truth = model(*inputs).numpy()
    sized, floats = net._checked(tuple(arrays))
    plain = reference.run(net.graph, sized.shapes, net.weights, *floats)
    for answer in (net(*arrays), plain):
        bound = 1e-5 * max(1, np.abs(truth).max(initial=0))
        np.testing.assert_allclose(answer, truth, rtol=1e-4, atol=bound)


@pytest.mark.parametrize("name", OVER_TOKENS)
def test_networks_over_tokens_answer_as_torch_does(name: str) -> None:
    torch.manual_seed(0)
    model = prune(OVER_TOKENS[name]())
    net = with_weights(captured(name), model)
    assert net.graph.inputs == (Input((8, WIDTH), free=1),)
    for batch, tokens in [(1, 8), (3, 1), (5, 2), (2, 11), (0, 5), (33, LONGEST)]:
        agrees(net, model, torch.randn(batch, tokens, WIDTH))
    if library.load() is not None:
        assert "runs in numpy" not in net.explain()


@pytest.mark.parametrize("name", OF_WORDS)
def test_a_gpt_takes_texts_of_any_length_that_it_has_positions_for(name: str) -> None:
    torch.manual_seed(0)
    model = prune(OF_WORDS[name]())
    net = net_of(model, torch.zeros(1, 7, dtype=torch.long))
    for batch, tokens in [(1, 7), (1, 1), (4, 3), (2, LONGEST), (5, 12)]:
        agrees(net, model, torch.randint(0, WORDS, (batch, tokens)))


@pytest.mark.parametrize("example", [1, 2, 3, LONGEST])
@pytest.mark.parametrize("name", ["gpt", "gpt by hand"])
def test_the_length_of_the_example_does_not_matter(name: str, example: int) -> None:
    """Of one token, of as many as torch.export gives the batch, or of as many as there may be."""
    torch.manual_seed(0)
    model = prune(OF_WORDS[name]())
    net = net_of(model, torch.zeros(1, example, dtype=torch.long))
    assert net.graph.inputs == (Input((example,), integer=True, free=1),)
    for batch, tokens in [(1, 1), (4, 3), (2, LONGEST)]:
        agrees(net, model, torch.randint(0, WORDS, (batch, tokens)))


@pytest.mark.parametrize("class_token", [True, False])
def test_a_vision_transformer_answers_as_torch_does(class_token: bool) -> None:
    torch.manual_seed(0)
    model = prune(ViT(class_token))
    net = net_of(model, torch.zeros(1, 3, 12, 12))
    for batch in (1, 5, 40):
        agrees(net, model, torch.randn(batch, 3, 12, 12))


@pytest.mark.parametrize("how", ["plain", "buffer", "tril", "where", "sum"])
def test_attention_that_is_written_out_is_found(how: str) -> None:
    ops = [node.op for node in captured(f"attention {how}").nodes if node.op != "slice"]
    assert ops == ["linear", "attention", "linear"]


def test_a_saved_gpt_runs_from_its_file(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, path = prune(GPT()), tmp_path / "gpt.asterism"
    asterism.save(model, path, example_inputs=torch.zeros(1, 5, dtype=torch.long))
    agrees(asterism.runtime.load(path), model, torch.randint(0, WORDS, (3, 9)))


class Pair(nn.Module):
    """Two texts of lengths of their own, and floats beside them."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.encoder = nn.Embedding(WORDS, WIDTH), encoder()
        self.head = nn.Linear(2 * WIDTH + 3, 4)

    def forward(self, one: Tensor, two: Tensor, more: Tensor) -> tuple[Tensor, Tensor]:
        texts = [self.encoder(self.words(ids)) for ids in (one, two)]
        made = torch.cat([texts[0].mean(1), texts[1].mean(1), more], 1)
        return self.head(made), texts[1]


def test_several_texts_have_lengths_of_their_own() -> None:
    torch.manual_seed(0)
    model = prune(Pair())
    examples = (torch.zeros(1, 5).long(), torch.zeros(1, 6).long(), torch.zeros(1, 3))
    net = net_of(model, *examples)
    assert [each.free for each in net.graph.inputs] == [1, 1, 0]
    one, two = torch.randint(0, WORDS, (4, 9)), torch.randint(0, WORDS, (4, 3))
    more = torch.randn(4, 3)
    found = net(one.numpy(), two.numpy(), more.numpy())
    for answer, truth in zip(found, model(one, two, more), strict=True):
        np.testing.assert_allclose(answer, truth.detach().numpy(), rtol=1e-4, atol=1e-5)


class OneLength(nn.Module):
    """All tokens as one row: for one length alone."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.head = nn.Embedding(WORDS, 4), nn.Linear(20, 3)

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(self.words(ids).flatten(1))


def test_a_network_for_one_length_is_captured_for_that_length() -> None:
    model = OneLength()
    net = net_of(model, torch.zeros(1, 5).long())
    assert net.graph.inputs == (Input((5,), integer=True),)
    agrees(net, model, torch.randint(0, WORDS, (3, 5)))
    with pytest.raises(InputError, match=r"shape \(N, 5\), not \(1, 6\)"):
        net(np.zeros((1, 6), int))


IDS = np.zeros((2, 5), np.int64)


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        (np.zeros((1, LONGEST + 1), int), "sequence of 17, and the network takes up to 16"),
        (IDS + WORDS, f"the input holds {WORDS}, and the network knows 0 to {WORDS - 1}"),
        (IDS - 1, "the input holds -1, and the network knows 0"),
        (IDS.astype(np.float32), "whole numbers, not float32"),
        (IDS.astype(bool), "whole numbers, not bool"),
        (IDS[0], r"shape \(N, any\), not \(5,\)"),
        (IDS[None], r"shape \(N, any\)"),
    ],
)
def test_wrong_ids_are_refused(ids: np.ndarray, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        gpt()(ids)
    assert "\n" not in str(caught.value)


def test_all_whole_numbers_are_ids() -> None:
    net, ids = gpt(), np.arange(10).reshape(2, 5)
    for kind in (np.uint8, np.int16, np.int32, np.uint64):
        np.testing.assert_array_equal(net(ids.astype(kind)), net(ids))
    assert net(ids[:0]).shape == (0, 5, WORDS)
    assert net(ids[:, :0]).shape == (2, 0, WORDS)


MASK = {"mask": np.zeros((4, 4), np.float32), "table": np.ones((9, 6), np.float32)}
TOKENS = (Input((5, 6)),)


@pytest.mark.parametrize(
    "graph",
    [
        Graph(TOKENS, (Node("attention", (0, 0, 0), settings={"heads": 4}),)),
        Graph(TOKENS, (Node("attention", (0, 0, 0), settings={"heads": 0}),)),
        Graph(TOKENS, (Node("attention", (0, 0, 0), settings={"mask": 3}),)),
        Graph(TOKENS, (Node("attention", (0, 0, 0), (0,)),)),
        Graph((Input((2**17, 2)),), (Node("attention", (0, 0, 0)),)),
        Graph((Input((6,)),), (Node("attention", (0, 0, 0)),)),
        Graph(TOKENS, (Node("embedding", (0,), (1,)),)),
        Graph((Input((5,), integer=True),), (Node("relu", (0,)), Node("embedding", (1,), (1,)))),
        Graph((Input((5,), integer=True),), (Node("embedding", (0,)),)),
        Graph(TOKENS, (Node("matmul", (0, 0)),)),
        Graph((Input((2**14, 2**14)),), (Node("matmul", (0, 0)),)),
        Graph(TOKENS, (Node("hide", (0,)),)),
        Graph(TOKENS, (Node("hide", (0,), (0,)),)),
        Graph(TOKENS, (Node("cut", (0,), (1,), (3, 0)),)),
        Graph(TOKENS, (Node("cut", (0,), (0,), (1, 0)),)),
        Graph(TOKENS, (Node("cut", (0,), (1,), (1,)),)),
        Graph(TOKENS, (Node("reshape", (0,), settings=(-1, -1)),)),
        Graph(TOKENS, (Node("reshape", (0,), settings=(-1, 0)),)),
        Graph(TOKENS, (Node("reshape", (0,), settings=(-1, 4)),)),
    ],
)
def test_a_graph_that_lies_is_refused(graph: Graph) -> None:
    with pytest.raises(FormatError):
        Net(graph, MASK)


def test_where_everything_is_hidden_attention_gives_zeros() -> None:
    graph = Graph((Input((4, 6)),), (Node("attention", (0, 0, 0), (0,), {"mask": 1}),))
    x = np.random.default_rng(0).standard_normal((3, 4, 6)).astype(np.float32)
    assert not Net(graph, MASK)(x).any()


@pytest.mark.parametrize("density", [0.02, 1.0])
def test_the_plan_of_an_encoder_is_explained(density: float) -> None:
    torch.manual_seed(0)
    net = with_weights(captured("encoder"), prune(OVER_TOKENS["encoder"](), density))
    x = np.zeros((1, 12, WIDTH), np.float32)
    for text in (net.explain(), net.explain(x)):
        assert "attention" in text or library.load() is None


@pytest.mark.parametrize("make", [GPT, lambda: ViT(True), encoder])
def test_compaction_leaves_such_networks_as_they_are(make: Callable[[], nn.Module]) -> None:
    from asterism.graph.compaction import compact

    torch.manual_seed(0)
    model = prune(make(), 0.05)
    try:
        smaller = compact(model).model
    except InputError:
        return  # which cannot be traced, and is said so
    x = torch.randint(0, WORDS, (2, 6)) if make is GPT else torch.randn(2, 6, WIDTH)
    x = torch.randn(2, 3, 12, 12) if isinstance(model, ViT) else x
    torch.testing.assert_close(smaller(x), model(x))
