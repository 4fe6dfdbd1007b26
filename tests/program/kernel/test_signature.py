from __future__ import annotations

import pytest

from apportion.errors import MalformedIR, UnknownName
from apportion.program.kernel.signature import signature_of, signatures_of

SOURCE = """
// kernel void decoy(int wrong)
kernel void scale(global const float4 *restrict values /* in */, global uint *counts, constant float *table,
                  local int *kept, struct Pair pair, float factor) {}
kernel void other(unsigned long n) {}
"""
IR = """
%struct.Pair = type { i8, i64 }

define dso_local spir_kernel void @scale(ptr addrspace(1) noalias nocapture noundef readonly align 16 %0, \
ptr addrspace(1) noundef align 4 %1, ptr addrspace(2) noundef align 4 %2, ptr addrspace(3) noundef align 4 %3, \
ptr nocapture noundef readonly byval(%struct.Pair) align 8 %4, float noundef %5) #0 !kernel_arg_addr_space !1 \
!kernel_arg_access_qual !2 !kernel_arg_type !3 !kernel_arg_base_type !4 !kernel_arg_type_qual !5 \
!reqd_work_group_size !6 {
  ret void
}

define dso_local spir_kernel void @other(i64 noundef %0) #0 !kernel_arg_addr_space !7 !kernel_arg_type !8 {
  ret void
}

!1 = !{i32 1, i32 1, i32 2, i32 3, i32 0, i32 0}
!2 = !{!"none", !"none", !"none", !"none", !"none", !"none"}
!3 = !{!"float4*", !"uint*", !"float*", !"int*", !"struct Pair", !"float"}
!4 = !{!"float __attribute__((ext_vector_type(4)))*", !"uint*", !"float*", !"int*", !"struct Pair", !"float"}
!5 = !{!"restrict const", !"", !"const", !"", !"", !""}
!6 = !{i32 64, i32 1, i32 1}
!7 = !{i32 0}
!8 = !{!"ulong"}
"""


def test_names_come_from_the_source_and_the_rest_from_the_metadata() -> None:
    scale = signature_of(IR, "scale", SOURCE)
    assert [(a.name, a.space, a.type) for a in scale.arguments] == [
        ("values", "global", "float4*"),
        ("counts", "global", "uint*"),
        ("table", "constant", "float*"),
        ("kept", "local", "int*"),
        ("pair", "value", "struct Pair"),
        ("factor", "value", "float"),
    ]
    assert scale.arguments[0].qualifiers == ("restrict", "const")
    assert scale.required_local_size == (64, 1, 1)


def test_elements_have_a_scalar_type_components_and_a_size() -> None:
    values, counts, *_, factor = signature_of(IR, "scale", SOURCE).arguments
    assert (values.scalar_type, values.components, values.element_bytes) == ("float32", 4, 16)
    assert (counts.scalar_type, counts.components, counts.element_bytes) == ("uint32", 1, 4)
    assert (factor.scalar_type, factor.element_bytes) == ("float32", 4)


def test_arguments_without_a_source_are_numbered() -> None:
    assert [a.name for a in signature_of(IR, "other").arguments] == ["arg0"]


def test_kernels_come_in_the_order_they_are_written() -> None:
    assert list(signatures_of(IR)) == ["scale", "other"]


def test_a_kernel_must_be_named_where_there_are_several() -> None:
    with pytest.raises(UnknownName, match=r"There are: other, scale"):
        signature_of(IR)


def test_an_unknown_argument_names_those_there_are() -> None:
    with pytest.raises(UnknownName, match=r"No argument called 'factr'. Did you mean 'factor'"):
        signature_of(IR, "scale", SOURCE).argument("factr")


def test_a_module_without_kernels_says_so() -> None:
    with pytest.raises(MalformedIR, match=r"There is no OpenCL kernel in this module"):
        signature_of("define void @f() {\n  ret void\n}\n")


def test_images_are_supported_and_pipes_are_not() -> None:
    for kind, supported in (("image2d_t", True), ("image2d_depth_t", False), ("pipe int", False)):
        ir = IR.replace('!8 = !{!"ulong"}', f'!8 = !{{!"{kind}"}}')
        assert signature_of(ir, "other").arguments[0].is_supported is supported
