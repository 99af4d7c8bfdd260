"""One broker process."""
