"""What does an instruction of a program reach, and what is live after it?"""

from __future__ import annotations

import apportion

GCD = """
int gcd(int a, int b)
{
    while (b) {
        int rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}
"""


def main() -> None:
    graph = apportion.graph_of(apportion.Source(GCD, "c", "gcd.c"))
    root = next(node for node, text in enumerate(graph.texts()) if text == "srem")
    for analysis in ("reachability", "dominance", "liveness"):
        (run,) = apportion.analyze(graph, analysis, root)
        labelled = [graph.text(node) for node in run.labels.nonzero()[0]]
        print(f"{analysis} from {graph.full_text(root)}: {len(labelled)} nodes, {', '.join(labelled)}")


if __name__ == "__main__":
    main()
