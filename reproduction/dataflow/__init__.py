"""The learned data-flow analyses of Table 4.1."""
