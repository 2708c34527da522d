"""Speed of the training engine, measured side by side with plain PyTorch."""
