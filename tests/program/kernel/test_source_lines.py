"""Debug locations: instructions know their line, and the code is what it is without them."""

from __future__ import annotations

from apportion.program.compile import CompileOptions, ir_of
from apportion.program.kernel.instructions import read_module
from apportion.program.kernel.source_lines import SourceLines, without_locations
from apportion.program.llvm import graph_of_ir
from apportion.program.source import Source

TEXT = """float f(float v) {
  return v * v + 1.0f;
}
__kernel void g(__global float* x, int n) {
  int i = get_global_id(0);
  if (i < n)
    x[i] = f(x[i]);
}
"""
SOURCE = Source(TEXT, "opencl", "g.cl")


def test_a_load_and_a_store_know_their_line():
    ir = ir_of(SOURCE, CompileOptions(line_tables=True))
    lines = SourceLines.of(ir, "g.cl")
    found = {one.opcode: lines.line_of(one.text) for one in read_module(ir).functions["g"].instructions}
    assert found["load"] == 7
    assert found["store"] == 7
    assert lines.line_of("ret void") == 0


def test_lines_of_another_file_are_not_ours():
    ir = ir_of(SOURCE, CompileOptions(line_tables=True))
    assert SourceLines.of(ir, "other.cl").lines == {}


def test_line_tables_change_nothing_but_locations():
    plain, told = ir_of(SOURCE), ir_of(SOURCE, CompileOptions(line_tables=True))
    assert graph_of_ir(plain).texts() == graph_of_ir(told).texts()
    assert "!dbg" not in without_locations(told)
    assert "/tmp" not in told


def test_what_was_inlined_from_elsewhere_counts_where_it_is_called():
    ir = """
!1 = !DIFile(filename: "g.cl", directory: ".")
!2 = !DIFile(filename: "header.h", directory: ".")
!3 = distinct !DISubprogram(name: "g", scope: !1, file: !1, line: 1)
!4 = distinct !DISubprogram(name: "h", scope: !2, file: !2, line: 1)
!5 = !DILocation(line: 12, column: 3, scope: !3)
!6 = !DILocation(line: 40, column: 3, scope: !4, inlinedAt: !5)
"""
    lines = SourceLines.of(ir, "g.cl")
    assert lines.line_of("%1 = add i32 %0, 1, !dbg !6") == 12
    assert lines.line_of("%1 = add i32 %0, 1, !dbg !5") == 12
