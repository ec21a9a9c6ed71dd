"""What experts, latent attention and recurrent mixers cost, as sentences with numbers; and models that have them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from flopmap.floor.roofline import price
from flopmap.floor.summary import memory
from flopmap.scenario import Request, make
from tests.physics.support import REFERENCE_CODE, cost, quantity, with_config

if TYPE_CHECKING:
    from flopmap.floor.roofline import Pricing
    from flopmap.records.book import Book

MIXTRAL = {
    "model_type": "mixtral",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 32000,
    "num_local_experts": 8,
    "num_experts_per_tok": 2,
}
DEEPSEEK_V3 = {
    "model_type": "deepseek_v3",
    "hidden_size": 7168,
    "intermediate_size": 18432,
    "moe_intermediate_size": 2048,
    "num_hidden_layers": 61,
    "first_k_dense_replace": 3,
    "num_attention_heads": 128,
    "q_lora_rank": 1536,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "num_experts_per_tok": 8,
    "vocab_size": 129280,
}
EXPERTS = {"d_in": 10, "width": 30, "experts": 8, "top_k": 2, "gated": 1, "bias": 0, "weight_bytes": 2, "act_bytes": 3}
LATENT = {
    "heads": 5,
    "latent": 70,
    "rope_dim": 11,
    "nope_dim": 13,
    "value_dim": 17,
    "kv_bytes": 2,
    "act_bytes": 3,
}


def priced(book: Book, config: dict[str, Any], **flags: Any) -> Pricing:
    scenario = make(Request(model="gpt2", on="h200-sxm", dtype="bf16", **flags), book)
    return price(with_config(scenario, config), book)


# -- experts ----------------------------------------------------------------------------------------------------------


def test_a_token_goes_through_the_matrices_of_its_experts_alone(book: Book) -> None:
    spent = cost(book, "moe-experts", t=7, **EXPERTS)
    # gate, up and down: 3 * 10 * 30 = 900 weights an expert
    assert spent["matrix"] == 2 * 7 * 2 * 900
    assert spent["active"] == 2 * 900
    assert spent["parameters"] == 8 * 900
    assert spent["resident"] == 8 * 900 * 2
    assert spent["vector"] == 0
    # rows of both widths are gathered and written for each of a token's experts, once for each GEMM
    assert spent["activations"] == 2 * 7 * 2 * (10 + 30) * 3
    assert spent["launches"] == 2


def test_the_experts_read_are_those_that_some_token_wants(book: Book) -> None:
    # one token touches its two; seven are expected to touch 8 (1 - 0.75^7) = 6.93; many touch all
    assert cost(book, "moe-experts", t=1, **EXPERTS)["weights"] == 2 * 900 * 2
    assert cost(book, "moe-experts", t=7, **EXPERTS)["weights"] == pytest.approx(8 * (1 - 0.75**7) * 1800)
    assert cost(book, "moe-experts", t=1000, **EXPERTS)["weights"] == pytest.approx(8 * 1800)
    assert cost(book, "moe-experts", {"moe-bytes": "all"}, t=1, **EXPERTS)["weights"] == 8 * 1800
    assert cost(book, "moe-experts", {"moe-bytes": "active"}, t=1000, **EXPERTS)["weights"] == 2 * 1800
    assert cost(book, "moe-experts", {"gemm-bytes": "weights"}, t=7, **EXPERTS)["activations"] == 0


def test_experts_with_biases_and_without_a_gate(book: Book) -> None:
    spent = cost(book, "moe-experts", t=7, **{**EXPERTS, "bias": 1, "gated": 0})
    # up and down: 600 weights; biases of 30 and 10
    assert spent["parameters"] == 8 * (600 + 40)
    assert spent["matrix"] == 2 * 7 * 2 * 600
    assert spent["vector"] == 7 * 2 * 40
    assert spent["resident"] == 8 * (600 * 2 + 40 * 3)
    assert cost(book, "moe-experts", t=1, **{**EXPERTS, "bias": 1})["weights"] == 2 * (900 * 2 + 70 * 3)
    everything = cost(book, "moe-experts", {"moe-bytes": "all"}, t=1, **{**EXPERTS, "bias": 1})
    one = cost(book, "moe-experts", {"moe-bytes": "active"}, t=1, **{**EXPERTS, "bias": 1})
    assert everything["weights"] == 8 * (900 * 2 + 70 * 3)
    assert one["weights"] == 2 * (900 * 2 + 70 * 3)
    assert quantity(book, "moe-experts", "intensity", t=1, **EXPERTS) == 1


def test_a_router_scores_every_expert(book: Book) -> None:
    spent = cost(book, "moe-router", t=7, d_in=10, experts=8, bias=1, act_bytes=3)
    assert spent["matrix"] == 2 * 7 * 80
    assert spent["active"] == 80
    assert spent["parameters"] == 80 + 8
    assert spent["weights"] == spent["resident"] == 88 * 3
    assert spent["exp"] == 7 * 8
    # a sum, a comparison, and the bias
    assert spent["vector"] == 7 * 8 * 3
    assert spent["activations"] == 7 * (10 + 8) * 3
    assert spent["launches"] == 1
    assert cost(book, "moe-router", {"gemm-bytes": "weights"}, t=7, d_in=10, experts=8, bias=1, act_bytes=3)[
        "activations"
    ] == 0  # fmt: skip


def test_a_shared_matrix_is_read_again_but_stored_once(book: Book) -> None:
    spent = cost(book, "shared-gemm", t=7, d_in=100, d_out=300, bias=1, weight_bytes=2, act_bytes=3)
    assert spent["matrix"] == 2 * 7 * 30_000
    assert spent["active"] == 30_000
    assert spent["weights"] == 30_000 * 2 + 300 * 3
    assert spent["vector"] == 7 * 300
    assert spent["activations"] == 7 * 400 * 3
    assert spent["launches"] == 1
    assert "parameters" not in spent
    shape = {"t": 7, "d_in": 100, "d_out": 300, "bias": 1, "weight_bytes": 2, "act_bytes": 3}
    assert cost(book, "shared-gemm", {"gemm-bytes": "weights"}, **shape)["activations"] == 0


# -- latent attention -------------------------------------------------------------------------------------------------


def test_absorbed_attention_reads_one_latent_for_all_heads(book: Book) -> None:
    spent = cost(book, "decode-latent-attention", t=2, pairs=100, kv=98, **LATENT)
    # scores over 70 + 11 elements, output over 70
    assert spent["matrix"] == 2 * 100 * 5 * (70 + 11 + 70)
    assert spent["kv_traffic"] == 98 * (70 + 11) * 2
    assert spent["activations"] == 2 * (70 + 11) * 3
    assert spent["vector"] == 4 * 100 * 5
    assert spent["exp"] == 100 * 5
    assert spent["launches"] == 1
    expanded = cost(book, "decode-latent-attention", {"mla": "expanded"}, t=2, pairs=100, kv=98, **LATENT)
    assert expanded["matrix"] == 2 * 100 * 5 * (13 + 11 + 17)
    assert expanded["kv_traffic"] == 98 * 5 * (13 + 11 + 17) * 2
    assert expanded["activations"] == 2 * 5 * (13 + 11 + 17) * 3


def test_prefill_expands_the_latent_of_a_cached_prefix_again(book: Book) -> None:
    spent = cost(book, "prefill-latent-attention", t=40, pairs=1000, kv=20, **LATENT)
    # scores and values over 1000 pairs; keys and values of 20 cached tokens from latents of 70
    assert spent["matrix"] == 2 * 1000 * 5 * (13 + 11 + 17) + 2 * 20 * 70 * 5 * (13 + 17)
    assert spent["kv_traffic"] == 20 * (70 + 11) * 2
    assert spent["activations"] == 40 * 5 * (13 + 11 + 17) * 3
    assert spent["vector"] == 4 * 1000 * 5
    assert spent["exp"] == 1000 * 5
    assert spent["launches"] == 1


def test_few_new_tokens_after_a_long_prefix_attend_to_its_latents(book: Book) -> None:
    spent = cost(book, "prefill-latent-attention", t=4, pairs=100, kv=20, **LATENT)
    # latents of 70 twice and 11 rotated, of 100 pairs: less than the expansion of 20 tokens
    assert spent["matrix"] == 2 * 100 * 5 * (2 * 70 + 11)
    expanded = cost(book, "prefill-latent-attention", {"mla": "expanded"}, t=4, pairs=100, kv=20, **LATENT)
    assert expanded["matrix"] == 2 * 100 * 5 * (13 + 11 + 17)
    # keys and values of 5 heads
    assert expanded["kv_traffic"] == 20 * 5 * (13 + 11 + 17) * 2


def test_a_prompt_of_one_token_multiplies_as_a_decode_step_does(book: Book) -> None:
    given = {"t": 1, "pairs": 4096, "kv": 4095, **LATENT}
    decode, prefill = (cost(book, f"{phase}-latent-attention", **given) for phase in ("decode", "prefill"))
    assert prefill["matrix"] == decode["matrix"]
    assert prefill["kv_traffic"] == decode["kv_traffic"]


def test_queries_outputs_and_scores_count_where_the_convention_says_so(book: Book) -> None:
    rows = {"decode": 5 * (2 * 70 + 11) + 70 + 11, "prefill": 2 * 5 * (13 + 11 + 17)}
    for phase, row in rows.items():
        name = f"{phase}-latent-attention"
        qkvo = cost(book, name, {"attention-bytes": "qkvo"}, t=4, pairs=100, kv=20, **LATENT)
        naive = cost(book, name, {"attention-bytes": "naive"}, t=4, pairs=100, kv=20, **LATENT)
        assert qkvo["activations"] == 4 * row * 3
        # scores and probabilities, written and read
        assert naive["activations"] == 4 * row * 3 + 4 * 100 * 5 * 3


def test_the_latent_cache_holds_one_vector_a_token(book: Book) -> None:
    spent = cost(book, "latent-write", written=3, cached=50, **LATENT)
    assert spent["cache"] == 50 * 81 * 2
    assert spent["kv_traffic"] == 3 * 81 * 2
    assert spent["activations"] == 3 * 81 * 3
    assert spent["launches"] == 1
    expanded = cost(book, "latent-write", {"mla": "expanded"}, written=3, cached=50, **LATENT)
    assert expanded["cache"] == 50 * 5 * 41 * 2
    assert expanded["kv_traffic"] == 3 * 5 * 41 * 2
    assert expanded["activations"] == 3 * 5 * 41 * 3
    assert cost(book, "latent-write", {"gemm-bytes": "weights"}, written=3, cached=50, **LATENT)["activations"] == 0


# -- recurrent mixers -------------------------------------------------------------------------------------------------


def test_elementwise_parameters_are_held_and_applied(book: Book) -> None:
    spent = cost(book, "elementwise", t=7, norm_width=40, width=100, act_bytes=3)
    assert spent["parameters"] == 40
    assert spent["weights"] == spent["resident"] == 40 * 3
    assert spent["vector"] == 7 * 100
    assert spent["activations"] == 2 * 7 * 100 * 3
    assert spent["launches"] == 1
    # held and not used: not read, no launch
    idle = cost(book, "elementwise", t=7, norm_width=40, width=0, act_bytes=3)
    assert (idle["parameters"], idle["resident"], idle["weights"], idle["launches"]) == (40, 120, 0, 0)
    only = cost(book, "elementwise", {"gemm-bytes": "weights"}, t=7, norm_width=40, width=100, act_bytes=3)
    assert only["activations"] == 0


def test_a_short_convolution_keeps_all_its_taps_but_the_last(book: Book) -> None:
    shape = {"t": 7, "seqs": 3, "channels": 100, "kernel": 4, "per_channel": 1, "bias": 1, "act_bytes": 2}
    spent = cost(book, "short-convolution", **shape)
    assert spent["parameters"] == 100 * 4 + 100
    assert spent["weights"] == spent["resident"] == 500 * 2
    assert spent["vector"] == 2 * 7 * 100 * 4
    # three taps of each sequence: held, and read and written once a step
    assert spent["held"] == 3 * 100 * 3 * 2
    assert spent["state"] == 2 * 3 * 100 * 3 * 2
    # the reference code keeps the current input beside them
    assert cost(book, "short-convolution", {"conv-state": "reference"}, **shape)["held"] == 3 * 100 * 4 * 2
    assert spent["activations"] == 2 * 7 * 100 * 2
    assert spent["launches"] == 1
    assert cost(book, "short-convolution", {"gemm-bytes": "weights"}, **shape)["activations"] == 0
    full = cost(book, "short-convolution", **{**shape, "per_channel": 5, "bias": 0})
    assert full["parameters"] == 100 * 4 * 5
    assert full["vector"] == 2 * 7 * 100 * 4 * 5


def test_a_state_is_read_and_written_once_a_step_whatever_the_context(book: Book) -> None:
    spent = cost(book, "state-update", t=7, seqs=3, state_elements=1000, state_flop=6, state_exps=1, state_bytes=2)
    assert spent["vector"] == 7 * 1000 * 6
    assert spent["exp"] == 7 * 1000
    assert spent["held"] == 3 * 1000 * 2
    assert spent["state"] == 2 * 3 * 1000 * 2
    assert spent["launches"] == 1


def test_a_scan_in_chunks_is_counted_by_its_least_matrix_products(book: Book) -> None:
    spent = cost(book, "state-scan", t=7, seqs=3, state_elements=1000, state_bytes=2)
    # an outer product into the state and a product out of it
    assert spent["matrix"] == 2 * 2 * 7 * 1000
    assert spent["held"] == 3 * 1000 * 2
    assert spent["state"] == 2 * 3 * 1000 * 2
    assert spent["launches"] == 1


# -- models: hand counts that torch confirms --------------------------------------------------------------------------


def test_mixtral(book: Book) -> None:
    step = priced(book, MIXTRAL, context_len=2048)
    assert step.totals["parameters"] == 46_702_792_704
    assert step.totals["active"] == 12_748_587_008
    assert step.totals["matrix"] == 26_570_915_840
    # resident all of it; streamed two experts a layer, one row of the embedding
    assert step.totals["resident"] == 2 * 46_702_792_704
    assert round(step.totals["weights"] / 1e9, 4) == 25.4977
    assert memory(step, book).kv_bytes_per_token == 131_072
    prompt = priced(book, MIXTRAL, phase="prefill", input_len=2048)
    assert round(prompt.totals["matrix"] / 1e12, 4) == 52.7817
    square = priced(book, MIXTRAL, phase="prefill", input_len=2048, conventions=REFERENCE_CODE)
    assert square.totals["matrix"] == 54_417_235_640_320


def test_deepseek_v3_in_both_forms(book: Book) -> None:
    step = priced(book, DEEPSEEK_V3, context_len=2048)
    assert step.totals["parameters"] == 671_026_404_352
    assert step.totals["active"] == 36_624_596_992
    assert step.totals["matrix"] == 108_045_139_968
    assert round(step.totals["resident"] / 1e9, 2) == 1342.05
    assert round(step.totals["weights"] / 1e9, 4) == 73.2512
    assert memory(step, book).kv_bytes_per_token == 70_272
    expanded = priced(book, DEEPSEEK_V3, context_len=2048, conventions=(("mla", "expanded"),))
    assert expanded.totals["matrix"] == 83_483_295_744
    # 128 heads of 128 + 64 for the key and 128 for the value, 2 bytes, 61 layers
    assert memory(expanded, book).kv_bytes_per_token == 61 * 128 * 320 * 2
    prompt = priced(book, DEEPSEEK_V3, phase="prefill", input_len=2048)
    assert round(prompt.totals["matrix"] / 1e12, 3) == 156.705
    square = priced(book, DEEPSEEK_V3, phase="prefill", input_len=2048, conventions=REFERENCE_CODE)
    assert square.totals["matrix"] == 170_973_789_683_712


@pytest.mark.parametrize(
    ("config", "at"),
    [(MIXTRAL, {1: 22.5, 8: 81.2, 32: 90.2, 64: 90.2}), (DEEPSEEK_V3, {1: 40.9, 8: 293, 32: 834, 64: 1136})],
    ids=["mixtral", "deepseek-v3"],
)
def test_routed_experts_read_by_batch(config: dict[str, Any], at: dict[int, float], book: Book) -> None:
    # no peer uses the expectation: they read k experts at any batch, or all E, or min(tk, E)
    for batch, gigabytes in at.items():
        step = priced(book, config, batch_size=batch, context_len=128)
        (experts,) = (line for line in step.lines if line.line.op.op_class == "moe-experts")
        assert float(f"{experts.costs['weights'] / 1e9:.4g}") == pytest.approx(gigabytes, rel=0.0025)
