// The five data-flow analyses.
