"""Parts of neural networks that several questions share; torch is imported here."""
