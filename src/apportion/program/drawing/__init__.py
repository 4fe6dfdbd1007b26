"""Program graphs as pictures."""
