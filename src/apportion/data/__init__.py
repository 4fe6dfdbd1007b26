"""Everything at rest: labelled graphs, measurements, batches, and the public datasets."""
