"""What launches of the bundled kernels draw under every cut, and which cut each objective asks for."""
