"""What failing disks and killed processes do to each verb that writes."""
