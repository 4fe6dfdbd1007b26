"""Every results page, made again from what is stored of it: `python -m reproduction pages`."""
