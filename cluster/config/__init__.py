"""Settings of the whole application, and the reader of its YAML file."""
