"""How long a launch takes on each device."""
