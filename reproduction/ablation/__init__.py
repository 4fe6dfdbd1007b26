"""The networks of the thesis' Chapter 5."""
