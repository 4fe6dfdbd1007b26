"""Texts that are almost LLVM IR give a graph or an error with its line: never a crash, a hang, or anything else."""

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from apportion.errors import MalformedIR
from apportion.program.llvm import GraphOptions, graph_of_ir
from reproduction.fuzzing import ir

SMALL = """\
%pair = type { i32, ptr }
@text = private constant [3 x i8] c"ab\\00", align 1
declare i32 @printf(ptr, ...)
define i32 @main(i32 %n, ptr %p) #0 {
entry:
  %slot = alloca i32, align 4
  store i32 %n, ptr %slot
  %c = icmp slt i32 %n, 10
  br i1 %c, label %then, label %done, !prof !0
then:
  %e = getelementptr inbounds %pair, ptr %p, i64 0, i32 1
  %r = call i32 (ptr, ...) @printf(ptr @text, i32 %n)
  switch i32 %r, label %done [
    i32 1, label %then
  ]
done:
  %x = phi i32 [ 0, %entry ], [ %r, %then ]
  ret i32 %x
}
attributes #0 = { nounwind }
!0 = !{!"branch_weights", i32 1, i32 2}
"""


def complaint(source: str | bytes, options: GraphOptions) -> MalformedIR | None:
    try:
        graph_of_ir(source, options=options)
    except MalformedIR as error:
        return error
    return None


def check(text: str, options: GraphOptions) -> None:
    error = complaint(text, options)
    assert error is None or 1 <= error.line <= text.count("\n") + 1


@settings(max_examples=400)
@given(
    st.integers(0, 2**32),
    st.sampled_from(["reference", "corrected", "ddf", "development"]),
    st.sampled_from(["use", "definition"]),
    st.booleans(),
)
def test_a_small_change_gives_a_graph_or_a_line(seed, variant, variable_per, recover):
    generator, text = random.Random(seed), SMALL
    for _ in range(generator.randint(1, 6)):
        text = ir.mutated(text, generator)
    check(text, GraphOptions(variant=variant, variable_per=variable_per, recover_pointees=recover))


@settings(max_examples=300)
@given(st.text() | st.text(st.sampled_from('%@!{}[]()<>"=;:#,*xi0123.- \n'), max_size=300))
def test_any_text_at_all_gives_a_graph_or_a_line(text):
    check(text, GraphOptions())


@settings(max_examples=100)
@given(st.binary(max_size=200), st.integers(0, len(SMALL)))
def test_bytes_that_are_no_text_give_a_graph_or_an_error(data, place):
    source = SMALL.encode()
    error = complaint(source[:place] + data + source[place:], GraphOptions())
    assert error is None or error.line >= 1


def test_where_llvm_and_we_read_a_mutant_the_graphs_are_the_same():
    # LLVM aborts on some broken profiles, and then on nothing after them.
    counts, findings = ir.batch(([SMALL.replace(", !prof !0", "")], 7, 1.0))
    assert findings == []
    assert counts["both read it, same graph"] > 5
