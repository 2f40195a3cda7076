"""The demonstration: a real small model, a local cluster, speculation against plain decoding."""
