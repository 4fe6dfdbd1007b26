"""How few measurements find a good configuration: our search beside its peers, on fully measured spaces."""
