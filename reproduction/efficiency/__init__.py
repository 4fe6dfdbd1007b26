"""How near co-execution comes to the best cut of each bundled kernel."""
