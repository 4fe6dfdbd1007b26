"""What is left of a CUDA file without its host code."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from apportion.program.host_code import device_code, instances


@given(st.text(alphabet="{}();#\n\\\"'/* ab=<>_\t", max_size=200))
def test_any_text_keeps_its_length_and_its_lines(text: str) -> None:
    left = device_code(text, ())
    assert len(left) == len(text)
    assert [place for place, each in enumerate(left) if each == "\n"] == [
        place for place, each in enumerate(text) if each == "\n"
    ]
    assert all(each in (" ", other) for each, other in zip(left, text, strict=True))


def test_functions_of_the_host_go_and_conditions_stay_in_pairs() -> None:
    text = """#if A
void host() {
#else
int host() {
#endif
  std::cout << "{";
}
__device__ int one() { return 1; }
struct P { int n; P() { n = 1; } } p;
int table[] = {1, 2};
"""
    left = device_code(text, ())
    assert [line.strip() for line in left.split("\n")] == [
        "#if A", "", "#else", "", "#endif", "", "", "__device__ int one() { return 1; }",
        "struct P { int n; P() { n = 1; } } p;", "int table[] = {1, 2};", "",
    ]  # fmt: skip


def test_instances_that_the_host_launches_are_named_if_their_arguments_are_known() -> None:
    text = """
    template <class T> void run(T *x) { scale<T><<<1, 2>>>(x); }
    void all() { scale<float><<<1, 2>>>(x); ns::tile<float, 16> <<<1, 2>>>(x); scale<float><<<4, 2>>>(y); }
    // never<int><<<1, 1>>>();
    """
    assert instances(text) == (
        "\nstatic void apportion_instances() { auto *k0 = &scale<float>; auto *k1 = &ns::tile<float, 16>; }\n"
    )
    assert instances("void all() { plain<<<1, 2>>>(x); }") == ""
