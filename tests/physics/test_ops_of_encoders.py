"""What bidirectional and cross attention cost, and what a stack that does not run costs, as sentences with numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from flopmap.floor.roofline import price
from flopmap.model.architecture import Attention, CrossAttention, FeedForward, Layer, Norm, Stack
from flopmap.records.book import load
from flopmap.records.formula import value
from flopmap.step import Group, Statistic, Step, formula
from tests.physics.support import LLAMA_8B, cost, scenario_of

if TYPE_CHECKING:
    from flopmap.floor.roofline import Pricing
    from flopmap.records.book import Book

HEADS = {"heads": 4, "kv_heads": 2, "head_dim": 16, "value_dim": 8, "kv_bytes": 1, "act_bytes": 3}
GLOSSARY = load().glossary


def test_bidirectional_attention_scores_the_whole_square(book: Book) -> None:
    spent = cost(book, "bidirectional-attention", **HEADS, square=600, kv=50, t=7, capped=0)
    # scores over 16 elements and output over 8: 2 FLOP each
    assert spent["matrix"] == 2 * 600 * 4 * (16 + 8)
    assert spent["vector"] == 600 * 4 * 4
    assert spent["exp"] == 600 * 4
    # the cache of a block before this one, and the block's own keys and values
    assert spent["kv_traffic"] == 50 * 2 * (16 + 8) * 1
    assert spent["activations"] == 7 * 2 * (16 + 8) * 3
    assert spent["launches"] == 1
    capped = cost(book, "bidirectional-attention", **HEADS, square=600, kv=50, t=7, capped=1)
    assert (capped["vector"], capped["exp"]) == (600 * 4 * 8, 600 * 4 * 2)


def test_queries_outputs_and_scores_count_where_the_convention_says_so(book: Book) -> None:
    step = {**HEADS, "square": 600, "kv": 50, "t": 7, "capped": 0}
    qkvo = cost(book, "bidirectional-attention", {"attention-bytes": "qkvo"}, **step)
    naive = cost(book, "bidirectional-attention", {"attention-bytes": "naive"}, **step)
    # a query and an output of each of 4 heads, a key and a value of each of 2
    assert qkvo["activations"] == 7 * (4 + 2) * (16 + 8) * 3
    # scores and probabilities, written and read
    assert naive["activations"] == 7 * (4 + 2) * (16 + 8) * 3 + 4 * 600 * 4 * 3
    crossed = {**HEADS, "crossed": 350, "remembered": 50, "t": 7}
    qkvo = cost(book, "cross-attention", {"attention-bytes": "qkvo"}, **crossed)
    naive = cost(book, "cross-attention", {"attention-bytes": "naive"}, **crossed)
    assert qkvo["activations"] == 7 * 4 * (16 + 8) * 3
    assert naive["activations"] == 7 * 4 * (16 + 8) * 3 + 4 * 350 * 4 * 3


def test_a_dense_convolution_is_a_gemm_whose_outputs_share_inputs(book: Book) -> None:
    stem = {"d_in": 80, "d_out": 384, "kernel": 3, "act_bytes": 2, "bias": 1}
    one = cost(book, "dense-convolution", t=3000, stride=1, **stem)
    # 80 channels under a kernel of 3, 384 filters, and their biases
    assert one["parameters"] == 80 * 3 * 384 + 384
    assert one["active"] == 80 * 3 * 384
    assert one["weights"] == one["resident"] == (80 * 3 * 384 + 384) * 2
    assert one["matrix"] == 2 * 3000 * 80 * 3 * 384
    assert one["vector"] == 3000 * 384
    # each input is read once, though three outputs use it
    assert one["activations"] == 3000 * (80 + 384) * 2
    assert one["launches"] == 1
    # with a stride of 2 half as many outputs read the same inputs
    two = cost(book, "dense-convolution", t=1500, stride=2, **stem)
    assert two["activations"] == (3000 * 80 + 1500 * 384) * 2
    plain = cost(book, "dense-convolution", t=1500, stride=2, **{**stem, "bias": 0})
    assert (plain["vector"], plain["parameters"]) == (0, 80 * 3 * 384)
    assert cost(book, "dense-convolution", {"gemm-bytes": "weights"}, t=1500, stride=2, **stem)["activations"] == 0


def test_cross_attention_reads_what_the_encoder_left_in_every_step(book: Book) -> None:
    spent = cost(book, "cross-attention", **HEADS, crossed=350, remembered=50, t=7)
    # K and V of 50 encoded tokens, 2 heads, 1 byte: held, and read
    assert spent["cache"] == spent["kv_traffic"] == 50 * 2 * (16 + 8) * 1
    assert spent["matrix"] == 2 * 350 * 4 * (16 + 8)
    assert spent["vector"] == 350 * 4 * 4
    assert spent["exp"] == 350 * 4
    assert spent["launches"] == 1


def test_keys_and_values_of_encoded_tokens_are_written_once(book: Book) -> None:
    spent = cost(book, "cross-write", **HEADS, t=50)
    assert spent["kv_traffic"] == 50 * 2 * (16 + 8) * 1
    assert spent["activations"] == 50 * 2 * (16 + 8) * 3
    assert spent["launches"] == 1
    assert cost(book, "cross-write", {"gemm-bytes": "weights"}, **HEADS, t=50)["activations"] == 0


# -- statistics -------------------------------------------------------------------------------------------------------


def statistic(symbol: str, *, window: int | None = None, chunked: bool = False, **sequence: int) -> float:
    return value(formula(Statistic(symbol, None, window, chunked=chunked), GLOSSARY, {}), sequence)


@given(st.integers(1, 60), st.integers(1, 40))
def test_a_window_without_a_mask_reaches_as_far_ahead_as_behind(new: int, window: int) -> None:
    side = (window - 1) // 2
    seen = sum(abs(query - key) <= side for query in range(new) for key in range(new))
    assert statistic("square", window=window, new=new, past=0) == seen


@given(st.integers(1, 60), st.integers(1, 20))
def test_a_chunk_without_a_mask_sees_itself(new: int, chunk: int) -> None:
    seen = sum(query // chunk == key // chunk for query in range(new) for key in range(new))
    assert statistic("square", window=chunk, chunked=True, new=new, past=0) == seen


def test_without_a_mask_every_token_sees_the_cache_and_the_whole_step() -> None:
    assert statistic("square", new=32, past=100) == 32 * 132
    assert statistic("crossed", new=3, memory=50) == 150
    assert statistic("remembered", memory=50) == 50


# -- stacks -----------------------------------------------------------------------------------------------------------

SELF = Attention(heads=4, kv_heads=4, head_dim=16, value_dim=16, causal=False)
ENCODER = Stack(
    name="encoder",
    hidden=64,
    layers=(Layer(attention=SELF, feed_forward=FeedForward(width=128, gated=False)),) * 2,
    quantized=True,
)
CROSS = CrossAttention(source="encoder", source_width=64, attention=SELF, norm=Norm())
ENCODER_MATRICES = 2 * (4 * 64 * 64 + 2 * 64 * 128)  # q, k, v, out, up and down of 2 layers


def stepped(book: Book, *groups: Group) -> Pricing:
    """A Llama of one layer that attends to a small encoder, and a step of these groups."""
    scenario = scenario_of(book, LLAMA_8B)
    main = scenario.model.architecture
    layer = replace(main.layers[0], pieces=(CROSS,))
    model = replace(scenario.model, architecture=replace(main, layers=(layer,), stacks=(ENCODER,)))
    return price(replace(scenario, model=model, step=Step(groups=groups)), book)


ENCODE = Group(count=3, new=10, past=0, positions=0, phase="encode", stack="encoder")
DECODE = Group(count=3, new=1, past=20, memory=10, phase="decode")


def test_a_stack_that_does_not_run_is_held_and_not_read(book: Book) -> None:
    both, alone = stepped(book, ENCODE, DECODE), stepped(book, DECODE)
    for resource in ("parameters", "resident", "cache", "active"):
        assert both.totals[resource] == alone.totals[resource]
    # 30 tokens through the encoder's matrices, 3 x 10^2 pairs in each of 2 layers, and the keys and values of the cross
    # attention: 2 matrices of 64 x 64 for 30 tokens
    expected = 2 * 30 * ENCODER_MATRICES + 2 * 2 * 300 * 4 * 32 + 2 * 30 * 2 * 64 * 64
    assert both.totals["matrix"] - alone.totals["matrix"] == expected
    read = both.totals["weights"] - alone.totals["weights"]
    # the norms' vectors too: 2 a layer of 64 elements
    assert read == 2 * (ENCODER_MATRICES + 2 * 64 * 64 + 2 * 2 * 64)


def test_encoding_alone_runs_nothing_of_the_main_layers(book: Book) -> None:
    encoded, both = stepped(book, ENCODE), stepped(book, ENCODE, DECODE)
    assert encoded.totals["parameters"] == both.totals["parameters"]
    idle = {line.line.op.name for line in encoded.lines if not line.seconds}
    assert {"lm_head", "mlp.down", "attention.qkv"} <= idle
    assert encoded.totals["logit_traffic"] == encoded.totals["cache"] == 0


def test_a_decoder_pays_for_its_source_with_every_token(book: Book) -> None:
    near, far = stepped(book, DECODE), stepped(book, replace(DECODE, memory=110))
    # 100 more encoded tokens for each of 3 sequences: K and V, 4 heads, 16 wide, 2 bytes
    assert far.totals["kv_traffic"] - near.totals["kv_traffic"] == 3 * 100 * 2 * 4 * 16 * 2
    assert far.totals["cache"] - near.totals["cache"] == 3 * 100 * 2 * 4 * 16 * 2
    assert far.totals["matrix"] - near.totals["matrix"] == 2 * 3 * 100 * 4 * 32
