"""What one run of each op class costs, as sentences with numbers. Every resource that a record lists is in one of them.

The numbers are small and distinct, so that a formula with one symbol for another comes out wrong.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flopmap.records.types import OpClass
from tests.physics.support import cost, quantity

if TYPE_CHECKING:
    from flopmap.records.book import Book

WEIGHTS_ONLY = {"gemm-bytes": "weights"}


# -- GEMMs ------------------------------------------------------------------------------------------------------------


def test_a_gemm_multiplies_and_adds_each_weight_for_each_token(book: Book) -> None:
    spent = cost(book, "weight-gemm", t=7, d_in=100, d_out=300, bias=0, weight_bytes=2, act_bytes=3)
    assert spent["matrix"] == 2 * 7 * 30_000
    assert spent["vector"] == 0
    # the matrix once, however many tokens; each token's input read and output written
    assert spent["weights"] == spent["resident"] == 30_000 * 2
    assert spent["activations"] == 7 * (100 + 300) * 3
    assert spent["parameters"] == spent["active"] == 30_000
    assert spent["launches"] == 1


def test_a_bias_is_one_addition_an_output_and_stays_in_the_activations_format(book: Book) -> None:
    spent = cost(book, "weight-gemm", t=7, d_in=100, d_out=300, bias=1, weight_bytes=0.5, act_bytes=2)
    assert spent["matrix"] == 2 * 7 * 30_000
    assert spent["vector"] == 7 * 300
    assert spent["parameters"] == 30_000 + 300
    assert spent["active"] == 30_000
    # a 4-bit matrix of 15,000 bytes beside a 16-bit bias of 600
    assert spent["weights"] == spent["resident"] == 15_000 + 600


def test_with_weights_alone_the_intensity_of_a_gemm_is_its_batch(book: Book) -> None:
    shape = {"t": 64, "d_in": 8192, "d_out": 8192, "bias": 0, "weight_bytes": 2, "act_bytes": 2}
    spent = cost(book, "weight-gemm", WEIGHTS_ONLY, **shape)
    assert spent["activations"] == 0
    assert spent["matrix"] / spent["weights"] == 64
    # with its activations: 2 * 64 * 8192^2 / (2 * 8192^2 + 64 * 2 * 8192 * 2) = 64 / (1 + 2 * 64 / 8192) = 63.02
    assert abs(quantity(book, "weight-gemm", "intensity", **shape) - 64 / (1 + 2 * 64 / 8192)) < 1e-9


def test_the_lm_head_runs_for_the_positions_that_want_logits(book: Book) -> None:
    spent = cost(book, "lm-head", logits=5, d_in=100, d_out=300, bias=0, stored=1, weight_bytes=2, act_bytes=3)
    # the factor 2 that a peer forgot
    assert spent["matrix"] == 2 * 5 * 30_000
    assert spent["vector"] == 0
    # its whole matrix, however few positions
    assert spent["weights"] == spent["resident"] == 30_000 * 2
    assert spent["activations"] == 5 * 100 * 3
    assert spent["logit_traffic"] == 5 * 300 * 3
    assert spent["parameters"] == spent["active"] == 30_000
    assert spent["launches"] == 1


def test_a_tied_head_is_stored_with_the_embedding_but_streamed_like_any_matrix(book: Book) -> None:
    spent = cost(book, "lm-head", logits=1, d_in=100, d_out=300, bias=0, stored=0, weight_bytes=2, act_bytes=2)
    assert spent["parameters"] == spent["resident"] == 0
    assert spent["active"] == 30_000
    assert spent["weights"] == 60_000


def test_a_head_with_a_bias(book: Book) -> None:
    spent = cost(book, "lm-head", logits=5, d_in=100, d_out=300, bias=1, stored=1, weight_bytes=1, act_bytes=2)
    assert spent["vector"] == 5 * 300
    assert spent["parameters"] == 30_000 + 300
    assert spent["active"] == 30_000
    assert spent["weights"] == spent["resident"] == 30_000 + 300 * 2


def test_a_chunk_that_wants_no_logits_leaves_the_head_alone(book: Book) -> None:
    spent = cost(book, "lm-head", logits=0, d_in=100, d_out=300, bias=1, stored=1, weight_bytes=2, act_bytes=2)
    for resource in ("matrix", "vector", "weights", "activations", "logit_traffic", "launches"):
        assert spent[resource] == 0
    assert spent["resident"] == 60_000 + 600


def test_the_head_without_its_activations(book: Book) -> None:
    spent = cost(
        book, "lm-head", WEIGHTS_ONLY, logits=5, d_in=100, d_out=300, bias=0, stored=1, weight_bytes=2, act_bytes=3
    )
    assert spent["activations"] == spent["logit_traffic"] == 0
    assert spent["weights"] == 60_000


# -- attention --------------------------------------------------------------------------------------------------------

# 5 tokens that see 50 keys in all, 40 of them from the cache; 12 query heads that share 4 key heads
ATTENTION = {"pairs": 50, "kv": 40, "t": 5, "heads": 12, "kv_heads": 4, "act_bytes": 3, "kv_bytes": 2}
WIDTHS = {"head_dim": 16, "value_dim": 8}


def test_attention_is_a_score_and_an_output_for_each_head_and_pair(book: Book) -> None:
    for op_class in ("prefill-attention", "decode-attention"):
        spent = cost(book, op_class, capped=0, **ATTENTION, **WIDTHS)
        # a score is a dot product over 16 elements, an output one over 8; 2 FLOP an element
        assert spent["matrix"] == 50 * 12 * (2 * 16 + 2 * 8)
        # scale and subtract (2), running maximum, running sum; and one exponential
        assert spent["vector"] == 50 * 12 * 4
        assert spent["exp"] == 50 * 12
        # key heads and not query heads: the error that made a peer's cache 4 to 8 times too large
        assert spent["kv_traffic"] == 40 * 4 * (16 + 8) * 2
        # the step's own keys and values
        assert spent["activations"] == 5 * 4 * (16 + 8) * 3
        assert spent["launches"] == 1


def test_a_soft_cap_is_a_tanh_a_score(book: Book) -> None:
    for op_class in ("prefill-attention", "decode-attention"):
        spent = cost(book, op_class, capped=1, **ATTENTION, **WIDTHS)
        # two multiply-adds and an exponential more
        assert spent["vector"] == 50 * 12 * (4 + 4)
        assert spent["exp"] == 50 * 12 * 2


def test_attention_that_moves_queries_and_outputs_too(book: Book) -> None:
    for op_class in ("prefill-attention", "decode-attention"):
        spent = cost(book, op_class, {"attention-bytes": "qkvo"}, capped=0, **ATTENTION, **WIDTHS)
        # queries and keys 16 wide, values and outputs 8 wide
        assert spent["activations"] == 5 * (12 * 16 + 4 * 16 + 4 * 8 + 12 * 8) * 3
        assert spent["kv_traffic"] == 40 * 4 * (16 + 8) * 2


def test_naive_attention_writes_and_reads_the_scores_and_the_probabilities(book: Book) -> None:
    for op_class in ("prefill-attention", "decode-attention"):
        spent = cost(book, op_class, {"attention-bytes": "naive"}, capped=0, **ATTENTION, **WIDTHS)
        assert spent["activations"] == 5 * (12 + 4) * (16 + 8) * 3 + 4 * 50 * 12 * 3
        assert spent["kv_traffic"] == 40 * 4 * (16 + 8) * 2


def test_the_intensity_of_decode_attention_is_the_number_of_heads_that_share_a_key(book: Book) -> None:
    # 999 cached keys and its own: 4 * 1000 * 12 * 16 FLOP over 1000 * 4 * 32 * 2 bytes = 12 / 4
    group = {"pairs": 1000, "kv": 999, "t": 1, "heads": 12, "kv_heads": 4, "head_dim": 16, "value_dim": 16}
    for op_class in ("prefill-attention", "decode-attention"):
        assert quantity(book, op_class, "intensity", capped=0, act_bytes=2, kv_bytes=2, **group) == 3
    # with a key and a value of another width: 2 * 1000 * 12 * 24 FLOP over 1000 * 4 * 24 * 2 bytes
    wide = {**group, "value_dim": 8}
    for op_class in ("prefill-attention", "decode-attention"):
        assert quantity(book, op_class, "intensity", capped=0, act_bytes=2, kv_bytes=2, **wide) == 3


def test_keys_and_values_are_written_once_and_held(book: Book) -> None:
    shape = {"cached": 50, "written": 3, "kv_heads": 4, "head_dim": 16, "value_dim": 8, "kv_bytes": 1, "act_bytes": 2}
    spent = cost(book, "kv-write", **shape)
    assert spent["cache"] == 50 * 4 * (16 + 8)
    assert spent["kv_traffic"] == 3 * 4 * (16 + 8)
    # read from the projection's output, in its format
    assert spent["activations"] == 3 * 4 * (16 + 8) * 2
    assert spent["launches"] == 1
    assert cost(book, "kv-write", WEIGHTS_ONLY, **shape)["activations"] == 0


# -- elementwise ------------------------------------------------------------------------------------------------------


def test_an_rms_norm_of_4096_is_four_flop_and_four_bytes_an_element(book: Book) -> None:
    spent = cost(book, "rms-norm", t=3, width=4096, norm_width=4096, act_bytes=2)
    # square, add to the sum, scale, multiply by the weight
    assert spent["vector"] == 3 * 4 * 4096
    # 2 bytes in and 2 bytes out
    assert spent["activations"] == 3 * 4 * 4096
    # its weight vector, once, in the activations' format
    assert spent["weights"] == spent["resident"] == 4096 * 2
    assert spent["parameters"] == 4096
    assert spent["launches"] == 1
    assert cost(book, "rms-norm", WEIGHTS_ONLY, t=3, width=4096, norm_width=4096, act_bytes=2)["activations"] == 0


def test_a_norm_of_query_heads_shares_one_vector_of_a_head(book: Book) -> None:
    spent = cost(book, "rms-norm", t=3, width=32 * 128, norm_width=128, act_bytes=2)
    assert spent["parameters"] == 128
    assert spent["weights"] == spent["resident"] == 256
    assert spent["vector"] == 3 * 4 * 4096
    assert spent["activations"] == 3 * 4 * 4096


def test_a_layer_norm_is_six_flop_an_element_and_one_more_with_a_bias(book: Book) -> None:
    plain = cost(book, "layer-norm", t=3, width=1000, norm_width=500, bias=0, act_bytes=2)
    # add to the mean, subtract it, square, add to the variance, scale, multiply by the weight
    assert plain["vector"] == 3 * 6 * 1000
    assert plain["activations"] == 3 * 1000 * (2 + 2)
    assert plain["parameters"] == 500
    assert plain["weights"] == plain["resident"] == 1000
    assert plain["launches"] == 1
    biased = cost(book, "layer-norm", t=3, width=1000, norm_width=500, bias=1, act_bytes=2)
    assert biased["vector"] == 3 * 7 * 1000
    assert biased["parameters"] == 2 * 500
    assert biased["weights"] == biased["resident"] == 2 * 1000
    assert biased["activations"] == plain["activations"]
    weights = cost(book, "layer-norm", WEIGHTS_ONLY, t=3, width=1000, norm_width=500, bias=1, act_bytes=2)
    assert weights["activations"] == 0


def test_a_residual_is_one_addition_of_two_rows_into_a_third(book: Book) -> None:
    spent = cost(book, "residual", t=3, width=1000, act_bytes=2)
    assert spent["vector"] == 3 * 1000
    assert spent["activations"] == 3 * (2 + 2 + 2) * 1000
    assert spent["launches"] == 1
    assert cost(book, "residual", WEIGHTS_ONLY, t=3, width=1000, act_bytes=2)["activations"] == 0


def test_a_rotation_is_three_flop_an_element_of_queries_and_keys(book: Book) -> None:
    spent = cost(book, "rope", t=3, heads=12, kv_heads=4, rotary_dim=64, act_bytes=2)
    # two elements: 4 multiplications and 2 additions
    assert spent["vector"] == 3 * (12 + 4) * (64 // 2) * 6
    assert spent["activations"] == 3 * (12 + 4) * 64 * (2 + 2)
    assert spent["launches"] == 1
    assert cost(book, "rope", WEIGHTS_ONLY, t=3, heads=12, kv_heads=4, rotary_dim=64, act_bytes=2)["activations"] == 0


def test_swiglu_reads_two_rows_and_writes_one(book: Book) -> None:
    spent = cost(book, "activation", t=3, width=1000, smooth=1, gated=1, act_bytes=2)
    # SiLU is x / (1 + exp(-x)): an exponential, an addition, a division, and the choice of sign; the gate multiplies
    assert spent["vector"] == 3 * 1000 * 4
    assert spent["exp"] == 3 * 1000
    assert spent["activations"] == 3 * 1000 * (2 + 2 + 2)
    assert spent["launches"] == 1


def test_gelu_without_a_gate_reads_one_row_and_writes_one(book: Book) -> None:
    spent = cost(book, "activation", t=3, width=1000, smooth=1, gated=0, act_bytes=2)
    assert spent["vector"] == 3 * 1000 * 3
    assert spent["exp"] == 3 * 1000
    assert spent["activations"] == 3 * 1000 * (2 + 2)


def test_relu_is_one_comparison(book: Book) -> None:
    spent = cost(book, "activation", t=3, width=1000, smooth=0, gated=0, act_bytes=2)
    assert spent["vector"] == 3 * 1000
    assert spent["exp"] == 0
    assert cost(book, "activation", WEIGHTS_ONLY, t=3, width=1000, smooth=0, gated=0, act_bytes=2)["activations"] == 0


# -- the two ends -----------------------------------------------------------------------------------------------------


def test_an_embedding_reads_a_row_a_token_and_never_more_than_the_table(book: Book) -> None:
    few = cost(book, "embedding", t=3, rows=50, width=1000, scaled=0, stored=1, weight_bytes=2, act_bytes=4)
    assert few["weights"] == 3 * 1000 * 2
    assert few["resident"] == 50 * 1000 * 2
    assert few["parameters"] == 50 * 1000
    assert few["vector"] == 0
    # the row is written as the layer's input
    assert few["activations"] == 3 * 1000 * 4
    assert few["launches"] == 1
    many = cost(book, "embedding", t=70, rows=50, width=1000, scaled=1, stored=1, weight_bytes=2, act_bytes=4)
    assert many["weights"] == 50 * 1000 * 2
    assert many["activations"] == 70 * 1000 * 4
    # some families multiply the row by the square root of the width
    assert many["vector"] == 70 * 1000
    # a drafter reads the table of the model that it drafts for
    borrowed = cost(book, "embedding", t=3, rows=50, width=1000, scaled=0, stored=0, weight_bytes=2, act_bytes=4)
    assert borrowed["weights"] == few["weights"]
    assert borrowed["resident"] == borrowed["parameters"] == 0


def test_a_streamed_embedding_is_the_whole_table(book: Book) -> None:
    shape = {"t": 3, "rows": 50, "width": 1000, "scaled": 0, "stored": 1, "weight_bytes": 2, "act_bytes": 4}
    assert cost(book, "embedding", {"embedding": "streamed"}, **shape)["weights"] == 50 * 1000 * 2
    assert cost(book, "embedding", WEIGHTS_ONLY, **shape)["activations"] == 0


def test_sampling_is_one_pass_over_the_vocabulary(book: Book) -> None:
    spent = cost(book, "sampling", logits=3, vocab=1000, capped=0, act_bytes=2)
    # maximum, subtract, add to the sum; an exponential; the row is read once
    assert spent["vector"] == 3 * 1000 * 3
    assert spent["exp"] == 3 * 1000
    assert spent["logit_traffic"] == 3 * 1000 * 2
    assert spent["launches"] == 1
    capped = cost(book, "sampling", logits=3, vocab=1000, capped=1, act_bytes=2)
    assert capped["vector"] == 3 * 1000 * 5
    assert capped["exp"] == 3 * 1000 * 2
    assert cost(book, "sampling", logits=0, vocab=1000, capped=0, act_bytes=2)["launches"] == 0


# -- what is covered --------------------------------------------------------------------------------------------------

SENTENCES = {
    # test_ops_of_plans.py
    "all-gather": {"link", "hops", "activations", "launches"},
    "all-reduce": {"link", "hops", "vector", "activations", "launches"},
    "embedding-reduce": {"link", "hops", "vector", "activations", "launches"},
    "expert-dispatch": {"link", "hops", "activations", "launches"},
    "kv-transfer": {"link", "hops", "launches"},
    "logits-gather": {"link", "hops", "logit_traffic", "launches"},
    "reduce-scatter": {"link", "hops", "vector", "activations", "launches"},
    "spread-experts": {
        *("parameters", "active", "resident", "matrix", "vector"),
        *("weights", "activations", "launches"),
    },
    "stage-send": {"link", "hops", "activations", "launches"},
    "activation": {"vector", "exp", "activations", "launches"},
    "decode-attention": {"matrix", "vector", "exp", "kv_traffic", "activations", "launches"},
    "embedding": {"parameters", "resident", "vector", "weights", "activations", "launches"},
    "lora": {
        "parameters",
        "resident",
        "matrix",
        "vector",
        "weights",
        "activations",
        "launches",
    },  # test_ops_of_drafts.py
    "kv-write": {"cache", "kv_traffic", "activations", "launches"},
    "layer-norm": {"parameters", "resident", "vector", "weights", "activations", "launches"},
    "lm-head": {
        *("parameters", "active", "resident", "matrix", "vector"),
        *("weights", "activations", "logit_traffic", "launches"),
    },
    "prefill-attention": {"matrix", "vector", "exp", "kv_traffic", "activations", "launches"},
    "residual": {"vector", "activations", "launches"},
    "rms-norm": {"parameters", "resident", "vector", "weights", "activations", "launches"},
    "rope": {"vector", "activations", "launches"},
    "sampling": {"vector", "exp", "logit_traffic", "launches"},
    "decode-latent-attention": {
        "matrix",
        "vector",
        "exp",
        "kv_traffic",
        "activations",
        "launches",
    },  # test_ops_of_mixtures.py
    "elementwise": {
        "parameters",
        "resident",
        "vector",
        "weights",
        "activations",
        "launches",
    },  # test_ops_of_mixtures.py
    "latent-write": {"cache", "kv_traffic", "activations", "launches"},  # test_ops_of_mixtures.py
    "moe-experts": {
        "parameters",
        "active",
        "resident",
        "matrix",
        "vector",
        "weights",
        "activations",
        "launches",
    },  # test_ops_of_mixtures.py
    "moe-router": {
        "parameters",
        "active",
        "resident",
        "matrix",
        "vector",
        "exp",
        "weights",
        "activations",
        "launches",
    },  # test_ops_of_mixtures.py
    "prefill-latent-attention": {
        "matrix",
        "vector",
        "exp",
        "kv_traffic",
        "activations",
        "launches",
    },  # test_ops_of_mixtures.py
    "shared-gemm": {"active", "matrix", "vector", "weights", "activations", "launches"},  # test_ops_of_mixtures.py
    # test_ops_of_sparse_attention.py
    "shared-attention": {"matrix", "vector", "exp", "kv_traffic", "activations", "launches"},
    "shared-write": {"cache", "kv_traffic", "held", "state", "activations", "launches"},
    "sparse-index": {"matrix", "vector", "kv_traffic", "activations", "launches"},
    "short-convolution": {
        "parameters",
        "resident",
        "vector",
        "weights",
        "state",
        "activations",
        "held",
        "launches",
    },  # test_ops_of_mixtures.py
    "state-scan": {"matrix", "state", "held", "launches"},  # test_ops_of_mixtures.py
    "state-update": {"vector", "exp", "state", "held", "launches"},  # test_ops_of_mixtures.py
    # test_ops_of_encoders.py
    "bidirectional-attention": {"matrix", "vector", "exp", "kv_traffic", "activations", "launches"},
    "cross-attention": {"cache", "matrix", "vector", "exp", "kv_traffic", "launches"},
    "cross-write": {"kv_traffic", "activations", "launches"},
    "dense-convolution": {
        "parameters",
        "active",
        "resident",
        "matrix",
        "vector",
        "weights",
        "activations",
        "launches",
    },
    "weight-gemm": {"parameters", "active", "resident", "matrix", "vector", "weights", "activations", "launches"},
}


def test_every_resource_of_every_op_class_has_a_sentence_here(book: Book) -> None:
    costs = {name: set(book.record(OpClass, name).cost) for name in book.ids("flops")}
    assert {name: found for name, found in costs.items() if found} == SENTENCES
