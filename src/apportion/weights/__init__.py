"""Every model that the package ships, one folder."""

from pathlib import Path

WEIGHTS = Path(__file__).parent
"The folder of the shipped models."
