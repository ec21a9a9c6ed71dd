"""What a kernel does is told by its name; the records that tell are held to their own examples."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from flopmap.checks import run
from flopmap.diagnosis.traces.kernels import COLLECTIVE, Match, Matcher
from flopmap.records.author import draft
from flopmap.records.book import decode, load
from flopmap.records.kernels import KernelWork
from flopmap.records.types import OpClass
from tests.records.small_book import OP_CLASS, small_book, write
from tests.traces.support import STRANGE

if TYPE_CHECKING:
    from pathlib import Path

BOOK = load()
MATCHER = Matcher(BOOK)


@pytest.mark.parametrize(
    ("name", "work"),
    [
        # one word decides against another that the name has, too
        ("_matmul_ogs_NNT_bf16xbf16xmxfp4_16x128x256x1_swiglu", "experts"),
        (
            "void cutlass::device_kernel<flash::enable_sm90<flash::FlashAttnFwdSm90<CollectiveMainloopFwdSm90>>>",
            "attention",
        ),
        (
            "void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel<AllReduceFusionPattern::kARRMSNorm>",
            "collective",
        ),
        ("_ZN5aiter24add_rmsnorm_quant_kernelIDF16bDF16bLi256ELi16ELb1E", "norm"),
        ("void vllm::moe::topkGatingSoftmax<4, 32, 4, 16, 64, int>", "routing"),
        (
            "void at::native::vectorized_elementwise_kernel<4, at::native::silu_kernel(at::TensorIteratorBase&)>",
            "activation",
        ),
        (
            "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::ArgMaxOps<float>>>",
            "sampling",
        ),
        (
            "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::MeanOps<float>>>",
            "elementwise",
        ),
        ("triton_red_fused__to_copy_add_mean_mul_pow_rsqrt_0", "norm"),
        ("triton_poi_fused_mul_silu_3", "activation"),
        (
            "void paged_attention_ll4mi_reduce_kernel<__hip_bfloat16, __hip_bfloat16, 128, 128, 256, 3, false>",
            "attention",
        ),
        ("void vllm::reshape_and_cache_flash_kernel<__nv_bfloat16>", "cache-write"),
        ("void marlin_moe_wna16::Marlin<__nv_bfloat16>", "experts"),
        ("void marlin::Marlin<__nv_bfloat16>", "matrix"),
        ("nvjet_hsh_256x128_64x4_2x1_v_bz_coopA_TNT", "matrix"),
        ("void deep_gemm::sm90_m_grouped_fp8_gemm_nt_contiguous<7168u>", "experts"),
        ("void cutlass::Kernel2<cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_32x32_128x2_tn_align8>", "matrix"),
        ("void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_256x128_32x3_tn_align8>", "matrix"),
        ("bmm_Bfloat16_Bfloat16Bfloat16_Fp32_t128x8x128u2_s6_et128x8_m128x8x16", "experts"),
        ("void moe::dev::routing::routingCustom::routingIndicesClusterKernel", "routing"),
        (
            "void moeTopK<256>(float const*, bool const*, float*, int*, int, int, int, int, bool, float const*)",
            "routing",
        ),
        ("triton_red_fused_fused_add_rms_norm_moe_forward_0", "norm"),
        ("gluon_mxfp4_moe_stage1_kernel", "experts"),
        ("fmhaSm100aKernel_QE4m3KvE2m1OE4m3H128PagedKvDenseP16VarSeqQ8Kv128PersistentSwapsAbForGen", "attention"),
        ("void flashinfer::VariableLengthMergeStatesKernel<(unsigned int)8, (unsigned int)16>", "attention"),
        ("attention_mixed_heads32_wmma", "attention"),
        ("indexer_scores_wmma128", "attention"),
        ("void trtllm_mnnvl::twoshotAllreduceKernel<(unsigned char)2, __nv_bfloat16>", "collective"),
        ("void sglang::cross_device_reduce_1stage<__nv_bfloat16, 4>(sglang::RankData*)", "collective"),
        ("fused_fused_dequantize3_NT_matmul12_kernel", "matrix"),
        ("dequant_q8_0_to_f16_transpose", "quantisation"),
        ("fused_rms_fp8_group_quant_kernel", "norm"),
        ("dynamic_per_token_scaled_quant", "quantisation"),
        ("applyMLARopeAndAssignQKV", "rope"),
        ("fuse_qk_rope_concat_and_cache_mla", "cache-write"),
        ("mla_a8w8_qh16_qseqlen1", "attention"),
        ("void at::native::<unnamed>::cunn_SoftMaxForward<(int)4, float, float, float>", "sampling"),
        ("void at::native::mbtopk::computeBlockDigitCounts<float, unsigned int, unsigned int, (int)2>", "sampling"),
        ("void vllm::reshape_and_cache_nvfp4_kernel", "cache-write"),
        ("triton_red_fused__to_copy_add_mean_moe_forward_shared_mul_pow_rsqrt_1", "norm"),
        ("triton_poi_fused_add_all_reduce_2", "elementwise"),
        ("void sglang::per_token_group_quant_flat_kernel<sglang::QuantTrait<__nv_bfloat16>>", "quantisation"),
        ("kernel_cutlass_kernel_flashinfernormkernelsfused_add_rmsnormFusedAddRMSNormKernel", "norm"),
        ("void sm90::decode::sparse_fp8::flash_fwd_splitkv_mla_fp8_sparse_kernel<KernelTemplate>", "attention"),
        ("group_idx_and_topk_idx_kernel", "routing"),
        ("BatchQKApplyRotaryPosIdsCosSinCacheHeadParallelismKernel", "rope"),
        ("fused_recurrent_gated_delta_rule_packed_decode_kernel", "state"),
        ("sample_recovered_tokens_kernel", "sampling"),
        ("_w8a8_triton_block_scaled_mm", "matrix"),
        ("fusion", None),  # of XLA: without its category it may be anything
        ("xla:custom fusion:fusion", None),
        (STRANGE, None),
        ("", None),
    ],
)
def test_a_name_tells_the_work(name: str, work: str | None) -> None:
    assert MATCHER.match(name).work == work


def test_no_record_takes_a_name_without_a_word_that_it_knows() -> None:
    assert MATCHER.match("void my_project::kernel_a<float>") == Match(None, None)


def test_an_op_class_is_of_at_most_one_kind_of_work() -> None:
    records = [BOOK.record(KernelWork, name) for name in BOOK.ids("kernels")]
    named = [name for record in records for name in record.classes]
    assert len(named) == len(set(named))
    # every class that a step prices has a kind of work
    assert {name for name in BOOK.ids("flops") if BOOK.record(OpClass, name).kind == "cost"} == set(named)
    assert COLLECTIVE in BOOK.ids("kernels")


RECORD = """title: Mine
order: {order}
classes: [{classes}]
kernels:
  - {{library: mine, source: paper, patterns: ['{pattern}'], examples: [{example}]}}
"""
THEIRS = {"order": "85", "classes": "a", "pattern": "gemm", "example": "sgemm_kernel"}


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A book of a few records, one of them of kernels, in place of the bundled one."""
    base = small_book(tmp_path / "base")
    cost = "cost: {matrix: 2 * t}\n"
    write(base, {"kernels/matrix.yaml": RECORD.format(**THEIRS), "flops/a.yaml": OP_CLASS + cost})
    monkeypatch.setattr(run, "BOOK", str(base))
    monkeypatch.setattr(run, "BUILT", str(base / "book.json"))
    return tmp_path / "overlay"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"pattern": "a("}, "no regular expression: missing ), unterminated subpattern at position 1"),
        ({"classes": "aa"}, "no op class 'aa' with a cost"),
        ({"classes": "a"}, "a is also of kernels/matrix"),
        ({"example": "other"}, "none of its patterns finds this name"),
        ({"pattern": "gemm", "example": "gemm_of_mine"}, "kernels/matrix takes this name first"),
    ],
)
def test_a_fault_of_a_record_is_found(small: Path, changes: dict[str, str], message: str) -> None:
    known = {"order": "200", "classes": "", "pattern": "zyx", "example": "zyx_kernel", **changes}
    write(small, {"kernels/mine.yaml": RECORD.format(**known)})
    assert {problem.message for problem in run.check((small,)).problems} >= {message}


def test_a_kernel_of_ones_own_is_told_by_an_overlay(small: Path) -> None:
    text = RECORD.format(order=5, classes="", pattern="mystery_kernel", example=STRANGE)
    write(small, {"kernels/mine.yaml": text})
    assert run.check((small,)).problems == []
    drafted = draft((small.parent / "base", small))
    assert Matcher(decode(drafted.built)).match(STRANGE) == Match("mine", "mine")
