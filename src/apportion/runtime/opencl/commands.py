"""What a stream's commands are, as numbers that a ring carries."""

LAUNCH, TO_DEVICE, FROM_DEVICE, FREE, FENCE, STOP, ZERO, VALUE = range(8)
