// LLVM IR text -> program graph.
