"""Model files and ONNX graphs."""
