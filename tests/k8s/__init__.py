"""The manifests in deploy/, without a cluster."""
