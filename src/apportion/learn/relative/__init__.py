"""How fast a run is on each of several systems, relative to the others."""
