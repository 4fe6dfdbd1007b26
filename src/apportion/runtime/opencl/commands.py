"""What the commands of streams and of repeated launches are, as numbers that a ring carries."""

LAUNCH, TO_DEVICE, FROM_DEVICE, FREE, FENCE, STOP, ZERO, VALUE, AGAIN, SETTLE = range(10)
