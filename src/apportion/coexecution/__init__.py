"""One kernel on several devices at once: forecasts, policies, launches, and what they teach."""
