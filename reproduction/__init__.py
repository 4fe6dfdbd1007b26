"""Published tables and results pages made again; not part of the installed package."""
