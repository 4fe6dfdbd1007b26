"""Tables, intervals, drawings and pages: how results look."""
